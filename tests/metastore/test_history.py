"""The events of the past: found from every position, with any split into blocks (M1, M4)."""

from __future__ import annotations

import random

import pytest

from palisade.metastore import history
from palisade.metastore.command_codec import encode_command
from palisade.metastore.errors import StoreCorrupt
from palisade.metastore.history import History
from palisade.metastore.ordered_map import Table
from palisade.metastore.record import JUMP_ROWS, LINK_BYTES, POINTER
from palisade.metastore.requests import DeleteRange, Put, Range, Txn, WatchRequest
from tests.support.meta_driver import Driver

ALL = WatchRequest(b"\0", b"\0", start_revision=2)


def value_at(driver: Driver, key: bytes, revision: int) -> bytes | None:
    found = driver.store.range(Range(key, revision=revision)).kvs
    return found[0].value if found else None


def test_history_finds_every_version_of_a_key_with_many_versions(driver: Driver) -> None:
    for number in range(5):
        driver.all(*(Put(b"k", b"%d" % (100 * number + n)) for n in range(100)))
    for revision in range(2, 502):
        assert value_at(driver, b"k", revision) == b"%d" % (revision - 2)
    assert value_at(driver, b"k", 1) is None


def test_history_search_takes_few_steps(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read at an old revision of a frequently written key never stalls the loop."""
    driver.batch(*(encode_command(Put(b"k", b"%d" % number)) for number in range(20_000)))
    steps: list[tuple[int, int]] = []
    original = History.event

    def counted(self: History, revision: int, sub: int) -> tuple[bytes, bytes]:
        steps.append((revision, sub))
        return original(self, revision, sub)

    monkeypatch.setattr(History, "event", counted)
    assert value_at(driver, b"k", 12) == b"10"
    assert len(steps) <= 20_000 / JUMP_ROWS + JUMP_ROWS + 1


def test_history_of_a_recreated_key_is_kept(driver: Driver) -> None:
    for number in range(150):
        driver.do(Put(b"k", b"%d" % number))
        driver.do(DeleteRange(b"k"))
    for number in range(150):
        assert value_at(driver, b"k", 2 + 2 * number) == b"%d" % number
        assert value_at(driver, b"k", 3 + 2 * number) is None


def test_revision_larger_than_a_block_stays_whole(driver: Driver) -> None:
    """Scenarios, watch: atomic per revision."""
    driver.do(Txn(success=tuple(Put(b"k%03d" % number, bytes(300)) for number in range(500))))
    driver.do(DeleteRange(b"k", b"l"))
    news = driver.store.watches.open(ALL).poll(bytes_max=1)
    news += driver.store.watches.open(WatchRequest(b"\0", b"\0", start_revision=3, prev_kv=True)).poll()
    assert [(item.revision, len(item.events)) for item in news] == [(2, 500), (3, 500)]
    assert all(len(event.prev_kv.value) == 300 for event in news[1].events if event.prev_kv)
    assert [event.kv.key for event in news[0].events] == [b"k%03d" % number for number in range(500)]
    assert driver.findings() == []


def test_contents_of_any_range_equal_those_of_its_events(driver: Driver) -> None:
    """The input of the change feed (issue 3, R4), over blocks of many revisions and revisions of many blocks."""
    for number in range(3):
        driver.batch(*(encode_command(Put(b"k%d" % (n % 7), bytes(n))) for n in range(40 * number)))
        driver.do(Txn(success=tuple(Put(b"t%d" % n, bytes(9000)) for n in range(5))))
        driver.do(DeleteRange(b"t1", b"t9"))
        driver.do(Txn(success=(Put(b"k1", b""), Put(b"a", b"x"))))
    past, latest = driver.store._history, driver.store.revision
    for first in range(1, latest + 1):
        for last in range(first - 1, latest + 1):
            events = [(number, [row[LINK_BYTES:] for row, _ in found]) for number, found in past.revisions(first, last)]
            assert list(past.contents(first, last)) == events


def test_range_with_a_missing_block_is_never_returned_as_complete(driver: Driver) -> None:
    """R4: none skipped. Each block is removed except the last part of a revision, whose loss the chain digest shows."""
    driver.batch(*(encode_command(Put(b"k", bytes(1000))) for _ in range(40)))
    driver.do(Txn(success=tuple(Put(b"t%d" % n, bytes(9000)) for n in range(7))))
    driver.batch(*(encode_command(Put(b"k", bytes(1000))) for _ in range(40)))
    latest = driver.store.revision
    blocks = dict(driver.tables.scan(Table.REVISION, b"", None))
    assert len(blocks) > 6
    for key, block in blocks.items():
        if key == POINTER.pack(42, 6):
            continue
        driver.tables.delete(Table.REVISION, key)
        with pytest.raises(StoreCorrupt, match="is missing"):
            list(driver.store._history.contents(1, latest))
        driver.tables.put(Table.REVISION, key, block)
    assert len(list(driver.store._history.contents(1, latest))) == 81


def test_transaction_read_sees_the_past_of_a_key_it_has_written(driver: Driver) -> None:
    driver.all(Put(b"a", b"old"), Put(b"b", b"old"))
    done = driver.do(Txn(success=(Put(b"b", b"new"), DeleteRange(b"a"), Range(b"a", b"c", revision=3))))
    assert [kv.value for kv in done.results[2].kvs] == [b"old", b"old"]


def test_random_history_reads_equally_before_and_after_a_restart() -> None:
    dice = random.Random(5)
    driver = Driver()
    for _ in range(40):
        keys = [b"k%d" % dice.randrange(6) for _ in range(dice.randrange(1, 30))]
        driver.batch(*(encode_command(Put(key, dice.randbytes(dice.randrange(3000)))) for key in keys))
        if dice.random() < 0.3:
            driver.do(DeleteRange(b"k%d" % dice.randrange(6)))
    again = driver.restarted()
    for revision in range(2, driver.store.revision + 1):
        everything = Range(b"\0", b"\0", revision=revision)
        assert driver.store.range(everything).kvs == again.store.range(everything).kvs


def test_checker_detects_a_jump_that_goes_too_far(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The jump is taken although it leads to the requested revision or beyond."""
    driver.batch(*(encode_command(Put(b"k", b"%d" % number)) for number in range(300)))

    def hasty(self: History, row: bytes, revision: int) -> bytes:
        _, jump, jump_sub, _, mod, *_ = history.ROW.unpack_from(row)
        return self.event(jump, jump_sub)[0] if mod > revision and jump else row

    monkeypatch.setattr(History, "version_at", hasty)
    assert any(value_at(driver, b"k", revision) != b"%d" % (revision - 2) for revision in range(2, 302))
