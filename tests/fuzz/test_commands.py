"""Commands that are anything: a clear refusal, the same on every replica, and nothing has changed (issue 5, "Fuzzing").

Commands reach the state machine from the log, so one that stops a replica would stop all of them, again after each
restart. Three replicas apply the same entries: one without interruption, one that restarts between entries, and one
that is made from a copy of the first midway.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import msgpack
import pytest

from palisade.metastore.command_codec import EACH, PUT_SERIES, SERIES, decode_result, encode_command
from palisade.metastore.digest import SUMS_KEY
from palisade.metastore.errors import MetastoreError
from palisade.metastore.limits import Limits
from palisade.metastore.ordered_map import Table
from palisade.metastore.requests import RequestId
from palisade.service.callers import UNRESTRICTED
from palisade.service.write_checks import WriteChecks
from tests.support.fuzzing import INTERESTING, Rounds, anything, changed, damaged
from tests.support.meta_driver import Driver, Tables
from tests.support.meta_workload import Workload

LIMITS = Limits(
    key_bytes_max=64, value_bytes_max=300, request_bytes_max=1000, txn_operations_max=20, quota_bytes=60_000
)
ENTRIES = 30
OPERATIONS = 24


def command(workload: Workload, dice: Random) -> bytes:
    """Any bytes; most often a command in which something is wrong."""
    kind = dice.random()
    if kind < 0.15:
        return workload.encoded()
    if kind < 0.2:
        return dice.randbytes(dice.randrange(50))
    if kind < 0.25:
        return packed([dice.randrange(OPERATIONS), anything(dice), *(anything(dice) for _ in range(dice.randrange(6)))])
    if kind < 0.45:
        return packed(changed(series(dice), dice))
    sound = workload.encoded() if dice.random() < 0.8 else system_write(dice)
    if kind < 0.65:
        return damaged(sound, dice)
    try:
        value: Any = msgpack.unpackb(sound)
    except (ValueError, msgpack.UnpackException):
        return sound
    return packed(changed(value, dice))


def series(dice: Random) -> list[Any]:
    contents = [dice.randbytes(dice.choice([0, 1, 2, 60, 65])) for _ in range(2 * dice.randrange(6))]
    request_id = None if dice.random() < 0.4 else [dice.choice(["one", "two", "three"]), dice.randrange(1, 60)]
    return [PUT_SERIES, request_id, contents]


def system_write(dice: Random) -> bytes:
    names = [dice.choice(["node/a", "node/b", "x"]) for _ in range(2)]
    return packed([18, None, [[names[0], dice.choice([0, 1, 2])]], [[names[1], dice.randbytes(3)]]])


def packed(value: Any) -> bytes:
    try:
        made: bytes = msgpack.packb(value)
    except (ValueError, OverflowError, TypeError):
        return msgpack.packb(None)  # type: ignore[no-any-return]
    return made


def test_any_bytes_in_the_log_come_to_the_same_end_on_every_replica(rounds: Rounds) -> None:
    for dice in rounds:
        workload = Workload(dice.randrange(1 << 30))
        workload.dice = dice
        one, two = Driver(limits=LIMITS), Driver(limits=LIMITS)
        three: Driver | None = None
        for number in range(ENTRIES):
            workload.revision, workload.clock_ms = one.store.revision, one.clock_ms
            if dice.random() < 0.3:
                one.wait(dice.choice([1, 700, 5_000]))
            entry = [command(workload, dice) for _ in range(dice.choice([1, 1, 2, 6]))]
            results = one.batch(*entry)
            stamp = one.log[-1][0]
            two = two.restarted()
            assert two.apply(stamp, entry) == results, rounds
            if three is not None:
                assert three.apply(stamp, entry) == results, rounds
            elif number == ENTRIES // 2:
                three = one.copied()
            for result in results:
                with suppress(MetastoreError):
                    decode_result(result) if result[0] not in (SERIES, EACH) else None
        assert three is not None
        assert one.store.digest() == two.store.digest() == three.store.digest(), rounds
        assert tables_of(one) == tables_of(two) == tables_of(three), rounds
        assert one.findings() == [], rounds


def tables_of(driver: Driver) -> Tables:
    """Without the sums of the buckets, which are in the digest: all zero they may be written, or not be there."""
    tables = driver.contents()
    tables[Table.META].pop(SUMS_KEY, None)
    return tables


def test_refused_command_changes_nothing(rounds: Rounds) -> None:
    """Nor does it cost the replica anything: a refusal has one line, whatever was sent."""
    for dice in rounds:
        workload = Workload(dice.randrange(1 << 30))
        workload.dice = dice
        driver = Driver(limits=LIMITS)
        driver.batch(*(workload.encoded() for _ in range(20)))
        for _ in range(ENTRIES):
            workload.revision, workload.clock_ms = driver.store.revision, driver.clock_ms
            sent = command(workload, dice)
            before, said = user_tables(driver.contents()), what_it_says(driver)
            (result,) = driver.batch(sent)
            if result[0] == 0:
                _, code, text, *_ = result
                assert code != "internal"
                assert len(text) < 1000, rounds
                assert user_tables(driver.contents()) == before, (rounds, sent, result)
                assert what_it_says(driver) == said, (rounds, sent, result)


def user_tables(tables: Tables) -> Tables:
    """A refusal with a request id is remembered, and counted, as it has to be."""
    return {table: rows for table, rows in tables.items() if table not in (Table.CLIENT, Table.META)}


def what_it_says(driver: Driver) -> tuple[object, ...]:
    store = driver.store
    return store.digest(), store.minimal_revision, store.lineage, store.alarm, store.leases()


def test_request_admitted_by_a_node_is_refused_for_the_state_alone(rounds: Rounds) -> None:
    """`service.write_checks` checks a command before it is proposed; the state machine can decode each one that it
    accepts."""
    for dice in rounds:
        workload = Workload(dice.randrange(1 << 30))
        workload.dice = dice
        driver = Driver(limits=LIMITS)
        for number in range(ENTRIES):
            workload.revision, workload.clock_ms = driver.store.revision, driver.clock_ms
            for item in WriteChecks(LIMITS).command(number, command(workload, dice), UNRESTRICTED):
                if item.refusal is None:
                    (result,) = driver.batch(item.command)
                    assert result[0] != 0 or result[1] != "invalid-request" or "malformed" not in result[2], (
                        rounds, item.command, result,
                    )  # fmt: skip


@pytest.mark.parametrize("sequence", INTERESTING)
def test_request_ids_at_the_limits_of_numbers(sequence: int) -> None:
    driver = Driver()
    for client in ("", "a", "x" * 5000, "\0"):
        with suppress(MetastoreError, OverflowError):
            driver.wire(Workload(1).put(), RequestId(client, sequence))
        driver.batch(packed([PUT_SERIES, [client, sequence], [b"k", b"v"]]))
    assert encode_command(Workload(1).put())
    assert driver.findings() == []
