"""Leases on the replicated clock (M5)."""

from __future__ import annotations

import math
import struct

import msgpack
import pytest

from palisade.metastore.command_codec import decode_command, decode_result, encode_command
from palisade.metastore.errors import LeaseExists, LeaseNotFound, LeaseTtlInvalid, StoreCorrupt
from palisade.metastore.lease import read_lease_row
from palisade.metastore.ordered_map import Table
from palisade.metastore.requests import (
    Command,
    DeleteRange,
    LeaseExpire,
    LeaseGrant,
    LeaseKeepAlive,
    LeaseRevoke,
    Put,
    Tick,
    Txn,
    WatchRequest,
    ttl_ms_of,
)
from palisade.metastore.results import LeaseResult
from tests.support.meta_driver import Driver


def expire(driver: Driver) -> None:
    """The leader's part: propose what is due."""
    for command in driver.store.due_commands(driver.clock_ms):
        driver.do(command)


@pytest.fixture
def leased(driver: Driver) -> Driver:
    """Lease 7 of 10 s with keys b and a."""
    driver.do(LeaseGrant(10_000, 7))
    driver.all(Put(b"b", b"1", lease=7), Put(b"a", b"2", lease=7), Put(b"free"))
    return driver


def test_lease_lists_its_keys_and_time(leased: Driver) -> None:
    leased.wait(2_500)
    leased.do(Tick())
    info = leased.store.lease_info(7)
    assert (info.ttl_ms, info.granted_ttl_s, info.keys) == (7_498, 10, (b"a", b"b"))
    assert leased.store.leases() == (7,)


def test_expiry_deletes_all_keys_in_one_revision_in_key_order(leased: Driver) -> None:
    leased.wait(10_000)
    watcher = leased.store.watches.open(WatchRequest(b"\0", b"\0"))
    expire(leased)
    (news,) = watcher.poll()
    assert [event.kv.key for event in news.events] == [b"a", b"b"]
    assert leased.store.revision == news.revision == 5
    assert leased.value(b"free") == b""


def test_lease_never_expires_before_its_deadline(leased: Driver) -> None:
    leased.wait(9_000)
    assert leased.do(LeaseExpire((7, 8))).count == 0
    assert leased.store.leases() == (7,)


def test_keep_alive_restores_the_full_ttl(leased: Driver) -> None:
    leased.wait(9_000)
    assert leased.do(LeaseKeepAlive(7)).ttl_s == 10
    leased.wait(9_000)
    expire(leased)
    assert leased.store.leases() == (7,)
    leased.wait(2_000)
    expire(leased)
    assert leased.store.leases() == ()


def test_keep_alive_of_a_revoked_lease_is_refused(leased: Driver) -> None:
    leased.do(LeaseRevoke(7))
    with pytest.raises(LeaseNotFound, match="lease 7 does not exist"):
        leased.do(LeaseKeepAlive(7))
    with pytest.raises(LeaseNotFound):
        leased.do(LeaseRevoke(7))
    with pytest.raises(LeaseNotFound):
        leased.store.lease_info(7)


def test_keep_alive_of_an_expired_lease_is_refused_before_its_removal(leased: Driver) -> None:
    leased.wait(20_000)
    with pytest.raises(LeaseNotFound, match="has run out"):
        leased.do(LeaseKeepAlive(7))


def test_revoke_deletes_the_keys_in_one_revision(leased: Driver) -> None:
    assert leased.do(LeaseRevoke(7)).revision == 5
    assert leased.store.key_count == 1


def test_remaining_time_survives_a_change_of_leader(leased: Driver) -> None:
    """The new leader's own clock is unrelated to the old one's: it continues from the last stamp."""
    leased.wait(4_000)
    leased.do(Tick())
    other = leased.copied().store
    other.lead(now=500_000.0, wall_ms=1)
    assert other.stamp(now=500_000.0, wall_ms=1)[1] == leased.clock_ms
    assert 5.9 < other.lease_info(7).ttl_s < 6
    clock_ms = other.stamp(now=500_005.5, wall_ms=1)[1]
    assert other.due_commands(clock_ms) == [Tick()]
    clock_ms = other.stamp(now=500_006.5, wall_ms=1)[1]
    assert other.due_commands(clock_ms) == [LeaseExpire((7,))]


def test_time_without_a_leader_does_not_count(leased: Driver) -> None:
    leased.do(Tick())
    remaining = leased.store.lease_info(7).ttl_s
    again = leased.restarted().store
    again.lead(now=0.0, wall_ms=99_999_999_999_999)
    assert again.stamp(0.0, 99_999_999_999_999)[1] == leased.clock_ms
    assert again.lease_info(7).ttl_s == remaining


def test_ticks_are_due_only_while_leases_run_without_other_writes(leased: Driver) -> None:
    now = leased.clock_ms
    assert leased.store.due_commands(now + 499) == []
    assert leased.store.due_commands(now + 500) == [Tick()]
    leased.do(LeaseRevoke(7))
    assert leased.store.due_commands(now + 60_000) == []


def test_due_commands_are_the_same_when_computed_twice(leased: Driver) -> None:
    due: list[Command] = leased.store.due_commands(leased.clock_ms + 20_000)
    assert due == leased.store.due_commands(leased.clock_ms + 20_000) == [LeaseExpire((7,))]


def test_put_moves_the_key_to_its_new_lease(leased: Driver) -> None:
    leased.do(LeaseGrant(60_000, 8))
    leased.do(Put(b"a", lease=8))
    assert (leased.store.lease_info(7).keys, leased.store.lease_info(8).keys) == ((b"b",), (b"a",))


def test_put_without_a_lease_detaches_the_key(leased: Driver) -> None:
    leased.do(Put(b"a"))
    assert leased.store.lease_info(7).keys == (b"b",)
    leased.do(LeaseRevoke(7))
    assert leased.value(b"a") == b""


def test_deleted_key_is_attached_to_no_lease(leased: Driver) -> None:
    leased.do(DeleteRange(b"a"))
    leased.do(Put(b"a", b"again"))
    leased.do(LeaseRevoke(7))
    assert leased.value(b"a") == b"again"


def test_put_with_an_unknown_lease_is_refused(driver: Driver) -> None:
    before = driver.contents()
    with pytest.raises(LeaseNotFound):
        driver.do(Put(b"a", lease=7))
    assert driver.contents() == before


def test_chosen_lease_id_is_free_and_the_same_on_every_replica(driver: Driver) -> None:
    twin = driver.copied()
    ids = [wire[2] for wire in driver.all(LeaseGrant(5_000), LeaseGrant(5_000), LeaseGrant(5_000))]
    assert ids == [wire[2] for wire in twin.all(LeaseGrant(5_000), LeaseGrant(5_000), LeaseGrant(5_000))]
    assert len(set(ids)) == 3
    driver.do(LeaseRevoke(ids[2]))
    assert driver.do(LeaseGrant(5_000)).id not in ids


@pytest.mark.parametrize("ttl_s", [0, -1, 0.099, 9_000_000_001, math.inf, -math.inf])
def test_ttl_out_of_range_is_refused(driver: Driver, ttl_s: float) -> None:
    with pytest.raises(LeaseTtlInvalid, match=r"a lease lives 0\.1 to 9000000000 seconds, not"):
        driver.do(LeaseGrant(ttl_ms_of(ttl_s)))


@pytest.mark.parametrize(("ttl_s", "ttl_ms"), [(10, 10_000), (1.5, 1_500), (1.1, 1_100), (0.1, 100)])
def test_ttl_in_seconds_becomes_whole_milliseconds(ttl_s: float, ttl_ms: int) -> None:
    assert ttl_ms_of(ttl_s) == ttl_ms
    with pytest.raises(ValueError, match="NaN"):
        ttl_ms_of(math.nan)


def test_lease_of_a_fraction_of_a_second_lives_so_long(driver: Driver) -> None:
    """Issue 17: the lease of a role has at most 1.5 s."""
    driver.do(LeaseGrant(1_500, 7))
    driver.wait(1_400)
    expire(driver)
    assert driver.do(LeaseKeepAlive(7)).ttl_ms == 1_500
    driver.wait(1_400)
    expire(driver)
    assert driver.store.leases() == (7,)
    driver.wait(200)
    expire(driver)
    assert driver.store.leases() == ()


def test_lease_never_ends_before_its_time_since_the_request(driver: Driver) -> None:
    """A stamp is rounded down to a millisecond. Planted (STAMP_ERROR_MS = 0): the lease ends 0.9 ms before its time."""
    store = driver.store
    asked = 100.0009
    store.lead(now=100.0, wall_ms=1)
    index, term = store.applied
    store.apply(index + 1, term, store.stamp(asked, 1), [encode_command(LeaseGrant(100, 7))])
    too_early, in_time = asked + 0.0995, asked + 0.1002
    assert store.due_commands(store.clock_ms(too_early)) == []
    assert store.due_commands(store.clock_ms(in_time)) == [LeaseExpire((7,))]


# Formats of the version before: times in whole seconds.


def test_grant_in_the_log_of_an_earlier_version_is_in_seconds() -> None:
    assert decode_command(msgpack.packb([7, None, 60, 5])) == (LeaseGrant(60_000, 5), None)
    assert decode_result([6, 9, 5, 60]) == LeaseResult(9, 5, 60_000)


def test_lease_row_of_an_earlier_version_is_in_seconds(leased: Driver) -> None:
    deadline = leased.store._leases.require(7)[1]
    leased.store._tables.put(Table.LEASE, (7).to_bytes(8, "big"), struct.pack(">QQ", 10, deadline))
    leased.store._leases.load()
    assert leased.store._leases.require(7) == (10_000, deadline)
    leased.do(LeaseKeepAlive(7))
    row = leased.store._tables.get(Table.LEASE, (7).to_bytes(8, "big"))
    assert row is not None
    assert read_lease_row(row)[0] == 10_000


@pytest.mark.parametrize("row", [b"", b"\0" * 15, b"\3" + b"\0" * 16, b"\0" * 18])
def test_malformed_lease_row_is_refused(row: bytes) -> None:
    with pytest.raises(StoreCorrupt, match="row of a lease is malformed"):
        read_lease_row(row)


def test_duplicate_lease_id_is_refused(leased: Driver) -> None:
    with pytest.raises(LeaseExists, match="lease 7"):
        leased.do(LeaseGrant(5_000, 7))


def test_leases_survive_a_restart(leased: Driver) -> None:
    again = leased.restarted()
    assert again.store.lease_info(7) == leased.store.lease_info(7)
    again.wait(11_000)
    expire(again)
    assert again.store.key_count == 1


def test_expired_leases_are_removed_in_one_revision_each(leased: Driver) -> None:
    leased.do(LeaseGrant(1_000, 8))
    leased.do(Txn(success=(Put(b"x", lease=8), Put(b"y", lease=8))))
    before = leased.store.revision
    leased.wait(20_000)
    expire(leased)
    assert leased.store.revision == before + 2
