"""Retries with a request id (M3)."""

from __future__ import annotations

from typing import Any

import pytest

from palisade.metastore import request_results as exactly_once
from palisade.metastore.command_codec import encode_command
from palisade.metastore.errors import InvalidRequest, LeaseNotFound, ResultEvicted
from palisade.metastore.limits import Limits, Retention
from palisade.metastore.ordered_map import Table
from palisade.metastore.requests import Command, DeleteRange, EvictResults, LeaseGrant, Put, Range, RequestId, Txn
from tests.support.meta_driver import Driver, contents_of


def rid(sequence: int, client: str = "c") -> RequestId:
    return RequestId(client, sequence)


WRITES: list[Command] = [
    Put(b"a", b"1"),
    Put(b"a", b"1", prev_kv=True),
    DeleteRange(b"a", b"z", prev_kv=True),
    Txn(success=(Put(b"a"), Range(b"\0", b"\0"), Txn(success=(Put(b"b"),)))),
    LeaseGrant(10_000),
    Put(b"a", lease=99),
]


@pytest.mark.parametrize("write", WRITES)
def test_retry_gets_the_first_result_and_changes_nothing(driver: Driver, write: Command) -> None:
    driver.do(Put(b"a", b"0"), rid(1))
    first = driver.wire(write, rid(2))
    driver.do(Put(b"a", b"later"))
    before = driver.contents()
    assert driver.wire(write, rid(2)) == first
    assert driver.contents() == before


@pytest.mark.parametrize("write", WRITES)
def test_retry_gets_the_first_result_on_any_replica_after_restart_and_snapshot(driver: Driver, write: Command) -> None:
    first = driver.wire(write, rid(7))
    for other in (driver.copied(), driver.restarted(), driver.copied().restarted()):
        revision = other.store.revision
        assert other.wire(write, rid(7)) == first
        assert other.store.revision == revision


def test_duplicate_request_id_in_a_batch_is_executed_once(driver: Driver) -> None:
    command = encode_command(Put(b"a", b"1"), rid(1))
    assert driver.batch(command, command) == [(1, 2), (1, 2)]
    assert driver.get(b"a").version == 1


def test_refusal_is_stored_as_a_result(driver: Driver) -> None:
    """A late duplicate must not succeed after the client received a refusal."""
    with pytest.raises(LeaseNotFound):
        driver.do(Put(b"a", lease=5), rid(1))
    driver.do(LeaseGrant(60_000, 5))
    with pytest.raises(LeaseNotFound):
        driver.do(Put(b"a", lease=5), rid(1))
    assert driver.store.get(b"a") is None


def test_pipelined_client_may_retry_any_of_4096_outstanding_requests(driver: Driver) -> None:
    results = driver.batch(*(encode_command(Put(b"k", b"%d" % n), rid(n)) for n in range(1, 5001)))
    before = driver.store.revision
    for sequence in (5000, 4999, 3000, 5000 - 4095):
        assert driver.wire(Put(b"k"), rid(sequence)) == results[sequence - 1]
    assert driver.store.revision == before


def test_requests_may_arrive_in_any_order(driver: Driver) -> None:
    sequences = [5, 1, 4, 100, 3, 99]
    first = {n: driver.wire(Put(b"k%d" % n), rid(n)) for n in sequences}
    assert {n: driver.wire(Put(b"k%d" % n), rid(n)) for n in sequences} == first
    assert driver.store.key_count == len(sequences)


def test_outdated_retry_is_refused_and_never_executed(driver: Driver) -> None:
    driver.batch(*(encode_command(Put(b"k"), rid(n)) for n in range(1, 5001)))
    before = driver.contents()
    with pytest.raises(ResultEvicted, match="request 800 of client 'c' is too old"):
        driver.do(Put(b"other"), rid(800))
    assert driver.contents() == before


def test_evicted_results_are_refused_also_after_a_restart(driver: Driver) -> None:
    """Refused as unknown, not executed again (scenarios, Meta storage)."""
    driver.do(Put(b"a"), rid(3))
    driver.wait(10_000)
    assert driver.do(EvictResults(driver.clock_ms)).count == 1
    for replica in (driver, driver.restarted(), driver.copied()):
        before = replica.contents()
        with pytest.raises(ResultEvicted):
            replica.do(Put(b"a"), rid(3))
        assert replica.contents() == before
    assert driver.do(Put(b"a"), rid(4)).revision == 3
    with pytest.raises(ResultEvicted):
        driver.do(Put(b"a"), rid(2))


def test_time_alone_evicts_nothing(driver: Driver) -> None:
    """Only a replicated command evicts, never a clock."""
    first = driver.wire(Put(b"a"), rid(1))
    driver.wait(10**9)
    assert driver.wire(Put(b"a"), rid(1)) == first
    assert EvictResults(driver.clock_ms - 3_600_000) in driver.store.due_commands(driver.clock_ms)


def test_returning_client_is_not_idle(driver: Driver) -> None:
    driver.do(Put(b"a"), rid(1, "old"))
    driver.do(Put(b"a"), rid(1, "busy"))
    driver.wait(5_000)
    edge = driver.clock_ms
    first = driver.wire(Put(b"a"), rid(2, "busy"))
    assert driver.do(EvictResults(edge)).count == 1
    assert driver.wire(Put(b"a"), rid(2, "busy")) == first


def test_eviction_in_the_future_affects_only_the_past(driver: Driver) -> None:
    """A leader with a wrong clock does no harm."""
    driver.do(Put(b"a"), rid(1))
    assert driver.do(EvictResults(10**15)).count == 1
    assert driver.do(Put(b"a"), rid(2)).revision == 3
    assert driver.all(Put(b"b"), EvictResults(10**15))[1][2] == 1


def test_eviction_is_bounded_and_repeated_by_the_leader() -> None:
    driver = Driver(limits=Limits(evicted_results_max=10), retention=Retention(client_idle_ms=1_000))
    for client in range(30):
        driver.do(Put(b"a"), rid(1, f"c{client}"))
    driver.wait(10_000)
    evicted: list[int] = []
    while driver.store.due_commands(driver.clock_ms):
        (due,) = driver.store.due_commands(driver.clock_ms)
        evicted.append(driver.do(due).count)
    assert evicted == [10, 10, 10]


def test_eviction_is_the_same_on_a_restarted_replica() -> None:
    driver = Driver(limits=Limits(evicted_results_max=4))
    names = [f"c{number}" for number in range(10)]
    driver.batch(*(encode_command(Put(b"a"), rid(1, name)) for name in names))
    twin = driver.copied()
    driver.wait(1_000)
    twin.wait(1_000)
    assert driver.do(EvictResults(10**9)) == twin.do(EvictResults(10**9))
    assert driver.contents() == twin.contents()


def test_results_of_a_client_are_bounded_in_bytes() -> None:
    driver = Driver(limits=Limits(client_results_bytes_max=20_000))
    driver.do(Put(b"big", bytes(3_000)))
    read = Txn(success=(Range(b"big"),))
    for sequence in range(1, 400):
        driver.do(read, rid(sequence))
    stored = sum(len(value) for key, value in contents_of(driver.tables)[Table.CLIENT].items() if key[:1] == b"r")
    assert stored < 20_000 + 128 * 3_200
    with pytest.raises(ResultEvicted):
        driver.do(read, rid(1))


def test_evicted_results_free_their_space(driver: Driver) -> None:
    for sequence in range(1, 100):
        driver.wire(WRITES[sequence % len(WRITES)], rid(sequence))
    driver.do(DeleteRange(b"\0", b"\0"))
    size = sum(len(driver.store.lease_info(lease).keys) for lease in driver.store.leases())
    assert size == 0
    before = driver.store.size_bytes
    plain = Driver()
    for sequence in range(1, 100):
        plain.wire(WRITES[sequence % len(WRITES)])
    plain.do(DeleteRange(b"\0", b"\0"))
    assert before > plain.store.size_bytes
    driver.do(EvictResults(10**9))
    assert driver.store.size_bytes == plain.store.size_bytes


def test_first_sequence_may_be_any_number(driver: Driver) -> None:
    first = driver.wire(Put(b"a"), rid(10**15))
    assert driver.wire(Put(b"a"), rid(10**15)) == first
    second = driver.wire(Put(b"a"), rid(10**15 - 4_000))
    assert second != first
    assert driver.wire(Put(b"a"), rid(10**15 - 4_000)) == second


@pytest.mark.parametrize("request_id", [rid(0), rid(-1), rid(1, ""), rid(1, "x" * 129)])
def test_invalid_request_id_is_refused(driver: Driver, request_id: RequestId) -> None:
    with pytest.raises(InvalidRequest):
        driver.do(Put(b"a"), request_id)
    assert driver.store.revision == 1


def test_clients_are_independent(driver: Driver) -> None:
    driver.do(Put(b"a"), rid(1, "one"))
    assert driver.do(Put(b"a"), rid(1, "two")).revision == 3


def executions(driver: Driver) -> int:
    """The checker: how often the retried puts of one key were executed."""
    for sequence in range(1, 60):
        driver.do(Put(b"key%d" % sequence), rid(sequence))
    driver.wait(1_000)
    driver.do(EvictResults(driver.clock_ms))
    for replica in (driver, driver.copied()):
        for sequence in range(1, 60):
            replica.wire(Put(b"key%d" % sequence), rid(sequence))
    return max(driver.get(b"key%d" % sequence).version for sequence in range(1, 60))


def test_checker_accepts_the_product(driver: Driver) -> None:
    assert executions(driver) == 1


def forgetful(self: Any, client: Any) -> None:
    """Evicts the floor with the results."""
    self._raise_floor(client, client.highest)
    self._dirty.pop(client.name, None)
    self._tables.delete(Table.CLIENT, exactly_once.ACTIVE + client.name)


def test_checker_detects_an_eviction_that_drops_the_floor(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exactly_once.RequestResults, "_forget", forgetful)
    assert executions(driver) == 2
