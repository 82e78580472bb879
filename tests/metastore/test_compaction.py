"""Compaction, retention and pins (M6)."""

from __future__ import annotations

from typing import Any

import pytest

from palisade.metastore import compaction
from palisade.metastore.digest_check import DigestPart
from palisade.metastore.errors import Compacted, FutureRevision, InvalidRequest, TooManyPins
from palisade.metastore.history import HistoryBlock, mod_of
from palisade.metastore.limits import Limits, Retention
from palisade.metastore.ordered_map import Table
from palisade.metastore.put_series import encode_series
from palisade.metastore.requests import Compact, DeleteRange, Pin, Put, Range, Txn, Unpin, WatchRequest
from tests.support.meta_driver import Driver, contents_of

ALL = WatchRequest(b"\0", b"\0", start_revision=1)


@pytest.fixture
def history(driver: Driver) -> Driver:
    """a: 2, 3, 6; b: 4, deleted at 5; c: 7."""
    driver.all(Put(b"a", b"2"), Put(b"a", b"3"), Put(b"b", b"4"), DeleteRange(b"b"), Put(b"a", b"6"), Put(b"c", b"7"))
    return driver


def retained(driver: Driver) -> list[int]:
    """The revisions whose events are stored."""
    blocks = map(HistoryBlock, contents_of(driver.tables)[Table.REVISION].values())
    return [mod_of(row) for block in blocks for row, _ in block.events()]


def readable(driver: Driver) -> list[Any]:
    """Everything readable at every retained revision."""
    store = driver.store
    revisions = range(store.minimal_revision, store.revision + 1)
    reads = [store.range(Range(b"\0", b"\0", revision=revision)) for revision in revisions]
    watch = WatchRequest(b"\0", b"\0", start_revision=store.minimal_revision, prev_kv=True)
    return [reads, store.watches.open(watch).poll(), store.digest(), [store.chain_at(r) for r in revisions]]


def test_compaction_refuses_reads_and_watches_below_mm_at_once(history: Driver) -> None:
    assert history.do(Compact(5)).minimal_revision == 5
    for action in (
        lambda: history.store.range(Range(b"a", revision=4)),
        lambda: history.store.watches.open(WatchRequest(b"a", start_revision=4)),
        lambda: history.do(Txn(success=(Range(b"a", revision=4),))),
    ):
        with pytest.raises(Compacted, match="the oldest that can still be read is 5") as refused:
            action()
        assert refused.value.minimal_revision == 5


def test_compaction_keeps_the_newest_live_version_at_the_target(history: Driver) -> None:
    history.do(Compact(5))
    history.collect_all()
    assert history.store.range(Range(b"a", revision=5)).kvs[0].value == b"3"
    assert history.store.range(Range(b"a")).kvs[0].value == b"6"


def test_tombstones_are_removed_when_mm_has_passed_them(history: Driver) -> None:
    history.do(Compact(6))
    history.collect_all()
    assert set(contents_of(history.tables)[Table.KEY]) == {b"a", b"c"}
    assert retained(history) == [6, 7]


def test_tombstone_at_mm_stays_for_watches(history: Driver) -> None:
    """etcd #19179: a watch from MM misses no delete."""
    history.do(Compact(5))
    history.collect_all()
    watcher = history.store.watches.open(WatchRequest(b"b", start_revision=5))
    assert [event.delete for news in watcher.poll() for event in news.events] == [True]
    history.do(Compact(6))
    history.collect_all()
    assert b"b" not in contents_of(history.tables)[Table.KEY]


def test_removal_progress_is_invisible(history: Driver) -> None:
    for round_ in range(20):
        history.all(Put(b"a", b"%d" % round_), DeleteRange(b"c"), Put(b"c"), Put(b"d%d" % (round_ % 3)))
    history.do(DeleteRange(b"d", b"e"))
    history.do(Compact(40))
    before = readable(history)
    while history.store.collect(1):
        assert readable(history) == before
    assert readable(history) == before
    assert history.findings() == []


def test_removal_slice_is_bounded(history: Driver) -> None:
    for number in range(500):
        history.do(Put(b"k", b"%d" % number))
    history.do(Compact(history.store.revision))
    assert history.store.collecting
    left = len(contents_of(history.tables)[Table.REVISION])
    history.store.collect(10)
    assert left - len(contents_of(history.tables)[Table.REVISION]) == 10


def test_writes_drive_the_removal(history: Driver) -> None:
    history.all(*(Put(b"k", b"%d" % number) for number in range(500)))
    history.do(Compact(history.store.revision))
    for number in range(20):
        history.do(Put(b"other", b"%d" % number))
    assert not history.store.collecting


def test_removal_keeps_up_with_series_of_puts(driver: Driver) -> None:
    """A series is one command and creates as many blocks as its puts: when it counted as one, removal lagged behind
    under constant writes, by 130 blocks with each entry of 4,096 puts (M6).
    """
    contents = [part for number in range(1000) for part in (b"%d" % number, bytes(200))]
    left = []
    for _ in range(12):
        driver.batch(encode_series(None, contents), encode_series(None, contents))
        driver.do(Compact(driver.store.revision))
        left.append(len(contents_of(driver.tables)[Table.REVISION]))
    assert max(left[6:]) <= max(left[:6])


def test_removal_continues_after_a_restart(history: Driver) -> None:
    """etcd #17780: the revision does not decrease when a node stops during compaction."""
    history.all(*(Put(b"k", b"%d" % number) for number in range(300)))
    history.do(Compact(250))
    history.store.collect(5)
    again = history.restarted()
    assert (again.store.revision, again.store.minimal_revision) == (history.store.revision, 250)
    assert again.store.collecting
    again.collect_all()
    assert readable(again) == readable(history)
    assert again.findings() == []


def test_mm_never_decreases(history: Driver) -> None:
    history.do(Compact(5))
    for revision in (5, 4, 1, 0):
        with pytest.raises(Compacted):
            history.do(Compact(revision))
    assert history.restarted().store.minimal_revision == 5


def test_future_revision_cannot_be_compacted(history: Driver) -> None:
    with pytest.raises(FutureRevision, match="the store is at 7"):
        history.do(Compact(8))


def test_repeated_compaction_is_refused_with_the_revision_it_has_reached(history: Driver) -> None:
    history.do(Compact(5))
    for again in (4, 5):
        with pytest.raises(Compacted, match=rf"the history before revision {again} is already removed: .* is 5 \(MM\)"):
            history.do(Compact(again))


def test_present_revision_can_be_compacted(history: Driver) -> None:
    history.do(Compact(7))
    history.collect_all()
    assert retained(history) == [6, 7]  # one block
    assert history.value(b"a") == b"6"


def test_compacting_its_delete_frees_a_huge_value(driver: Driver) -> None:
    """At once in the logical size; the bytes are removed when MM moves on, because a block of events is removed as a
    whole.
    """
    driver.do(Put(b"a", bytes(100_000)))
    driver.do(DeleteRange(b"a"))
    driver.do(Compact(3))
    assert driver.store.size_bytes == 0
    driver.do(Put(b"b"))
    driver.do(Compact(4))
    driver.collect_all()
    assert sum(map(len, contents_of(driver.tables)[Table.REVISION].values())) < 200


def test_logical_size_falls_at_compaction_equally_on_all_replicas(history: Driver) -> None:
    twin = history.copied()
    history.do(Compact(6))
    history.collect_all()
    twin.do(Compact(6))
    assert history.store.size_bytes == twin.store.size_bytes
    fresh = Driver()
    fresh.all(Put(b"a", b"6"), Put(b"c", b"7"))
    assert history.store.size_bytes == fresh.store.size_bytes


def test_watch_at_mm_gets_no_previous_value(history: Driver) -> None:
    history.do(Compact(6))
    request = WatchRequest(b"a", start_revision=6, prev_kv=True)
    before = history.store.watches.open(request).poll()
    assert before[0].events[0].prev_kv is None
    history.collect_all()
    assert history.store.watches.open(request).poll() == before


def test_checker_detects_removal_of_too_much(history: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the block of MM itself is removed with those below it."""
    history.do(Put(b"d", b"8"))
    history.do(Put(b"d", b"9"))
    original = compaction.POINTER

    class OneTooFew:
        @staticmethod
        def unpack(pointer: bytes) -> tuple[int, int]:
            revision, sub = original.unpack(pointer)
            return revision - 1, sub

    monkeypatch.setattr(compaction, "POINTER", OneTooFew)
    history.do(Compact(8))
    history.collect_all()
    assert [(found.part, found.revision) for found in history.findings()] == [(DigestPart.REVISION, 9)]


# Pins


def test_pin_limits_compaction_until_it_ends(history: Driver) -> None:
    history.do(Pin("reader", 4, 60_000))
    assert history.do(Compact(6)).minimal_revision == 4
    assert history.store.range(Range(b"b", revision=4)).count == 1
    assert history.store.due_commands(history.clock_ms) == []
    history.do(Unpin("reader"))
    assert history.store.due_commands(history.clock_ms) == [Compact(6)]
    assert history.do(Compact(6)).minimal_revision == 6


def test_pin_expires(history: Driver) -> None:
    history.do(Pin("recovering", 4, 60_000))
    history.do(Compact(6))
    history.wait(60_000)
    assert history.store.due_commands(history.clock_ms + 1) == [Compact(6)]
    assert history.do(Compact(6)).minimal_revision == 6


def test_pin_can_be_renewed_up_to_its_maximum_life(history: Driver) -> None:
    for _ in range(12):
        assert history.do(Pin("reader", 4, 300_000)).remaining_ms > 0
        history.wait(299_000)
    assert history.do(Pin("reader", 4, 300_000)).remaining_ms < 60_000
    history.do(Compact(6))
    history.wait(60_000)
    with pytest.raises(InvalidRequest, match="the longest that one may"):
        history.do(Pin("reader", 4, 300_000))
    assert history.do(Compact(6)).minimal_revision == 6


def test_pin_below_mm_or_in_the_future_is_refused(history: Driver) -> None:
    history.do(Compact(5))
    with pytest.raises(Compacted):
        history.do(Pin("late", 4, 1_000))
    with pytest.raises(FutureRevision):
        history.do(Pin("early", 8, 1_000))


def test_pins_are_limited_in_number_and_survive_a_restart() -> None:
    driver = Driver(limits=Limits(pins_max=2))
    driver.do(Put(b"a"))
    driver.do(Pin("one", 2, 1_000))
    driver.do(Pin("two", 2, 500_000))
    again = driver.restarted()
    with pytest.raises(TooManyPins):
        again.do(Pin("three", 2, 1_000))
    again.wait(1_000)
    assert again.do(Pin("three", 2, 1_000)).remaining_ms == 1_000


# Retention


def by_count(revisions: int, step: int) -> Retention:
    return Retention(history_age_ms=10**12, history_revisions=revisions, compaction_step_revisions=step)


def test_retention_by_count_moves_in_steps() -> None:
    driver = Driver(retention=by_count(100, 10))
    driver.all(*(Put(b"k", b"%d" % number) for number in range(109)))
    assert driver.store.due_commands(driver.clock_ms) == []
    driver.do(Put(b"k"))
    assert driver.store.due_commands(driver.clock_ms) == [Compact(11)]
    driver.do(Compact(11))
    assert driver.store.due_commands(driver.clock_ms) == []


def test_retention_by_age_keeps_everything_readable_an_hour_ago() -> None:
    driver = Driver(retention=Retention(compaction_step_revisions=10))
    for _ in range(100):
        driver.do(Put(b"k"))
        driver.wait(59_999)
    hour_ago = driver.clock_ms - 3_600_000
    (due,) = driver.store.due_commands(driver.clock_ms)
    assert due == Compact((hour_ago - 1) // 60_000 + 2)
    assert driver.do(due).minimal_revision == driver.store.minimal_revision
    assert driver.store.due_commands(driver.clock_ms) == []


def test_retention_by_age_compacts_a_tenth_more_than_the_age() -> None:
    driver = Driver()
    driver.all(Put(b"k"), Put(b"k"))
    assert driver.store.due_commands(driver.clock_ms + 3_700_000) == []
    assert driver.store.due_commands(driver.clock_ms + 3_960_001) == [Compact(3)]


def test_compaction_continues_after_a_change_of_leader(history: Driver) -> None:
    history.do(Pin("reader", 4, 60_000))
    history.do(Compact(6))
    successor = history.copied()
    successor.store.lead(now=77.0, wall_ms=0)
    successor.do(Unpin("reader"))
    assert successor.store.due_commands(successor.store.clock_ms(77.0)) == [Compact(6)]
