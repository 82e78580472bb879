"""The short way of a put makes what the long way makes, byte for byte."""

from __future__ import annotations

import random
from typing import Any

import pytest

from metastore.codec import encode_command
from metastore.machine import MetaStore
from metastore.ordered_map import Table
from metastore.requests import Command, DeleteRange, LeaseGrant, Put, RequestId
from tests.support.meta_driver import Driver


def commands() -> list[bytes]:
    dice = random.Random(11)
    found = [encode_command(LeaseGrant(60, 7))]
    for sequence in range(1, 400):
        key = b"k%d" % dice.randrange(30)
        value = dice.randbytes(dice.randrange(20))
        request_id = RequestId(f"c{dice.randrange(3)}", sequence) if dice.random() < 0.5 else None
        if dice.random() < 0.1:
            found.append(encode_command(DeleteRange(key), request_id))
        else:
            found.append(encode_command(Put(key, value, lease=7 if dice.random() < 0.1 else 0), request_id))
        if request_id and dice.random() < 0.1:
            found.append(found[-1])
    return found


class NoShortWay:
    def run(self, _commands: object, first: int, _answers: object) -> int:
        return first


def without_blocks(driver: Driver) -> dict[Table, dict[bytes, bytes]]:
    """How the events are cut into blocks depends on the way."""
    return {table: rows for table, rows in driver.contents().items() if table is not Table.REVISION}


def events(driver: Driver) -> list[tuple[int, list[tuple[bytes, bytes]], bytes | None]]:
    store = driver.store
    found = store._history.revisions(store.minimal_revision, store.revision)
    return [(revision, list(rows), store.chain_at(revision)) for revision, rows in found]


def test_both_ways_make_the_same_tables_results_and_wakes(monkeypatch: pytest.MonkeyPatch) -> None:
    short, long = Driver(), Driver()
    monkeypatch.setattr(long.store, "_plain_puts", NoShortWay())
    for start in range(0, 400, 7):
        batch = commands()[start : start + 7]
        assert short.batch(*batch) == long.batch(*batch)
    assert without_blocks(short) == without_blocks(long)
    assert events(short) == events(long)
    assert short.store.digest() == long.store.digest()


def test_most_puts_take_the_short_way(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    long_way: list[object] = []
    original = MetaStore._execute

    def counted(self: MetaStore, request: Command) -> Any:
        long_way.append(request)
        return original(self, request)

    monkeypatch.setattr(MetaStore, "_execute", counted)
    driver.do(Put(b"a"), RequestId("c", 1))
    driver.batch(*(encode_command(Put(b"a"), RequestId("c", sequence)) for sequence in range(2, 100)))
    driver.batch(*(encode_command(Put(b"b")) for _ in range(100)))
    assert len(long_way) == 1
