"""Watches: in order, whole revisions, no gap, no duplicate (M4)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from palisade.metastore import watch
from palisade.metastore.errors import Compacted, FutureRevision, InvalidRequest
from palisade.metastore.requests import Compact, DeleteRange, Put, Txn, WatchRequest
from palisade.metastore.results import Event, KeyValue, RevisionEvents
from palisade.metastore.watch import Watcher
from tests.support.meta_driver import Driver

EVERYTHING = (b"\0", b"\0")


def drain(watcher: Watcher, **options: int) -> list[RevisionEvents]:
    """Poll until it sleeps."""
    found = list(watcher.poll(**options))
    while not watcher.sleeping:
        found += watcher.poll(**options)
    return found


def fault_in(news: list[RevisionEvents], expected: list[tuple[int, list[bytes]]]) -> str | None:
    """The checker: the fault of a delivery, compared with what was written."""
    seen = [(part.revision, [event.kv.key for event in part.events]) for part in news]
    revisions = [revision for revision, _ in seen]
    if revisions != sorted(revisions):
        return "out of order"
    if len(set(revisions)) != len(revisions):
        return "twice"
    if seen != expected:
        return "a gap, a split or an event that was not asked for"
    return None


def test_watch_from_now_gets_exactly_the_later_events(driver: Driver) -> None:
    driver.do(Put(b"a", b"old"))
    watcher = driver.store.watches.open(WatchRequest(b"a"))
    assert drain(watcher) == []
    driver.all(Put(b"a", b"new"), Put(b"b"))
    assert drain(watcher) == [RevisionEvents(3, (Event(False, KeyValue(b"a", b"new", 2, 3, 2, 0), None),))]


def test_watch_from_the_past_replays_and_continues(driver: Driver) -> None:
    driver.all(Put(b"a", b"1"), Put(b"b"), Put(b"a", b"2"))
    watcher = driver.store.watches.open(WatchRequest(b"a", start_revision=1))
    assert [part.revision for part in drain(watcher)] == [2, 4]
    driver.do(DeleteRange(b"a"))
    (news,) = drain(watcher)
    assert news == RevisionEvents(5, (Event(True, KeyValue(b"a", b"", 0, 5, 0, 0), None),))


def test_watch_from_the_future_gets_no_earlier_events(driver: Driver) -> None:
    """etcd #20221."""
    watcher = driver.store.watches.open(WatchRequest(*EVERYTHING, start_revision=4))
    assert drain(watcher) == []
    driver.all(Put(b"a"), Put(b"b"))
    assert drain(watcher) == []
    assert watcher.next_revision == 4
    driver.do(Put(b"c"))
    assert [part.revision for part in drain(watcher)] == [4]


def test_events_of_a_revision_are_never_split(driver: Driver) -> None:
    driver.do(Txn(success=tuple(Put(b"k%d" % number, bytes(100)) for number in range(50))))
    watcher = driver.store.watches.open(WatchRequest(*EVERYTHING, start_revision=1))
    (news,) = drain(watcher, bytes_max=1)
    assert [event.kv.key for event in news.events] == [b"k%d" % number for number in range(50)]


def test_events_keep_the_order_of_the_operations(driver: Driver) -> None:
    driver.all(Put(b"x"), Put(b"y"))
    watcher = driver.store.watches.open(WatchRequest(*EVERYTHING))
    driver.do(Txn(success=(Put(b"z"), DeleteRange(b"x", b"z"), Put(b"a"))))
    (news,) = drain(watcher)
    assert [(event.kv.key, event.delete) for event in news.events] == [
        (b"z", False),
        (b"x", True),
        (b"y", True),
        (b"a", False),
    ]


def test_watch_gets_only_matching_events(driver: Driver) -> None:
    for request, expected in [
        (WatchRequest(b"b", b"d", start_revision=1), [b"b", b"c", b"c"]),
        (WatchRequest(b"c", b"\0", start_revision=1), [b"c", b"d", b"c"]),
        (WatchRequest(b"c", start_revision=1, filters=frozenset({"delete"})), [b"c"]),
        (WatchRequest(b"c", start_revision=1, filters=frozenset({"put"})), [b"c"]),
        (WatchRequest(b"c", start_revision=1, filters=frozenset({"put", "delete"})), []),
    ]:
        if driver.store.revision == 1:
            driver.do(Txn(success=(Put(b"b"), Put(b"c"), Put(b"d"))))
            driver.do(DeleteRange(b"c"))
        news = drain(driver.store.watches.open(request))
        assert [event.kv.key for part in news for event in part.events] == expected


def test_watch_gets_previous_values_on_request(driver: Driver) -> None:
    driver.all(Put(b"a", b"1"), Put(b"a", b"2"), DeleteRange(b"a"), Put(b"a", b"3"))
    news = drain(driver.store.watches.open(WatchRequest(b"a", start_revision=1, prev_kv=True)))
    previous = [event.prev_kv.value if event.prev_kv else None for part in news for event in part.events]
    assert previous == [None, b"1", b"2", None]


def test_sleeping_watch_is_woken_once_and_only_by_matching_keys(driver: Driver) -> None:
    calls: list[str] = []
    hub = driver.store.watches
    key = hub.open(WatchRequest(b"k"), lambda: calls.append("key"))
    part = hub.open(WatchRequest(b"a", b"c"), lambda: calls.append("range"))
    for watcher in (key, part):
        drain(watcher)
    driver.do(Put(b"x"))
    assert calls == []
    driver.all(Put(b"b"), Put(b"b"))
    driver.do(Put(b"b"))
    assert calls == ["range"]
    driver.do(Put(b"k"))
    assert calls == ["range", "key"]
    assert [part.revision for part in drain(part)] == [3, 4, 5]


def test_watches_are_woken_after_the_whole_batch(driver: Driver) -> None:
    seen: list[int] = []
    watcher = driver.store.watches.open(WatchRequest(b"a"), lambda: seen.append(driver.store.revision))
    drain(watcher)
    driver.all(Put(b"a"), Put(b"b"), Put(b"c"))
    assert seen == [4]


def test_sleeping_watch_is_up_to_date_without_reading(driver: Driver) -> None:
    """Progress without events: it may resume after all unrelated revisions, even after compaction."""
    watcher = driver.store.watches.open(WatchRequest(b"quiet"))
    drain(watcher)
    driver.all(*(Put(b"busy", b"%d" % number) for number in range(100)))
    driver.do(Compact(90))
    assert (watcher.progress, watcher.next_revision) == (101, 102)
    driver.do(Put(b"quiet"))
    assert [part.revision for part in drain(watcher)] == [102]


def test_progress_is_never_ahead_of_the_events(driver: Driver) -> None:
    """etcd #15220."""
    driver.all(*(Put(b"a", b"%d" % number) for number in range(10)))
    watcher = driver.store.watches.open(WatchRequest(b"a", start_revision=2))
    assert watcher.progress == 1
    delivered = 1
    while not watcher.sleeping:
        for part in watcher.poll(revisions_max=3):
            delivered = part.revision
        assert watcher.progress == delivered
    future = driver.store.watches.open(WatchRequest(b"a", start_revision=50))
    assert future.progress == driver.store.revision


def test_slow_watch_loses_nothing_and_never_stalls_the_store(driver: Driver) -> None:
    """etcd #17529, #17247, #15271."""
    watcher = driver.store.watches.open(WatchRequest(b"a", b"c"))
    expected: list[tuple[int, list[bytes]]] = []
    news: list[RevisionEvents] = []
    dice = random.Random(7)
    for _ in range(400):
        key = dice.choice([b"a", b"b", b"z"])
        revision = driver.do(Put(key)).revision
        if key != b"z":
            expected.append((revision, [key]))
        if dice.random() < 0.1:
            news += watcher.poll(revisions_max=dice.randrange(1, 20))
    news += drain(watcher)
    assert fault_in(news, expected) is None


def test_watch_overtaken_by_compaction_gets_mm_and_no_gap(driver: Driver) -> None:
    """etcd #18089, #19179."""
    driver.all(*(Put(b"a", b"%d" % number) for number in range(20)))
    watcher = driver.store.watches.open(WatchRequest(b"a", start_revision=2))
    assert watcher.poll(revisions_max=4)[-1].revision == 5
    driver.do(Compact(6))
    driver.collect_all()
    assert watcher.poll(revisions_max=1)[0].revision == 6
    driver.do(Compact(10))
    with pytest.raises(Compacted, match=r"10 \(MM\)") as refused:
        watcher.poll()
    assert refused.value.minimal_revision == 10


def test_watch_resumes_where_another_stopped(driver: Driver) -> None:
    driver.all(*(Put(b"a", b"%d" % number) for number in range(10)))
    first = driver.store.watches.open(WatchRequest(b"a", start_revision=1))
    part = list(first.poll(revisions_max=5))
    second = driver.store.watches.open(WatchRequest(b"a", start_revision=first.next_revision))
    news = part + drain(second)
    assert fault_in(news, [(revision, [b"a"]) for revision in range(2, 12)]) is None


def test_closed_watch_is_never_woken(driver: Driver) -> None:
    calls: list[int] = []
    watcher = driver.store.watches.open(WatchRequest(b"a"), lambda: calls.append(1))
    drain(watcher)
    watcher.close()
    driver.do(Put(b"a"))
    assert calls == []


def test_watch_may_close_another_one_when_woken(driver: Driver) -> None:
    hub = driver.store.watches
    second = hub.open(WatchRequest(b"a"), lambda: None)
    first = hub.open(WatchRequest(b"a"), second.close)
    for watcher in (first, second):
        drain(watcher)
    driver.do(Put(b"a"))
    assert len(drain(first)) == 1


def test_replaced_state_wakes_all_watches(driver: Driver) -> None:
    """A snapshot was installed: the cursor stays, so nothing is skipped silently."""
    calls: list[int] = []
    watcher = driver.store.watches.open(WatchRequest(b"a"), lambda: calls.append(1))
    drain(watcher)
    leader = driver.copied()
    leader.all(Put(b"a"), Put(b"a"), Put(b"a"))
    for table, content in leader.contents().items():
        for key, value in content.items():
            driver.tables.put(table, key, value)
    driver.store.reload()
    assert calls == [1]
    assert [part.revision for part in drain(watcher)] == [2, 3, 4]


def test_single_revision_can_be_read_for_a_watch(driver: Driver) -> None:
    driver.all(Put(b"a"), Put(b"b"))
    request = WatchRequest(*EVERYTHING)
    assert [event.kv.key for event in driver.store.watches.events(request, 3).events] == [b"b"]
    with pytest.raises(FutureRevision):
        driver.store.watches.events(request, 4)


@pytest.mark.parametrize(
    "request_",
    [WatchRequest(b""), WatchRequest(b"a", start_revision=-1), WatchRequest(b"a", filters=frozenset({"noput"}))],
)
def test_invalid_watch_is_refused(driver: Driver, request_: WatchRequest) -> None:
    with pytest.raises(InvalidRequest):
        driver.store.watches.open(request_)


# The checker is proved by the faults that it is for.


def skipping(original: Any) -> Any:
    """A wake that moves the cursor to the present: the events of the batch are lost."""

    def wake(self: Any, watchers: Any, before: int) -> None:
        original(self, watchers, self.revision)

    return wake


def repeating(original: Any) -> Any:
    """A poll that does not record its progress."""

    def poll(self: Any, watcher: Any, revisions_max: int, bytes_max: int) -> Any:
        first = watcher.next_revision
        found = original(self, watcher, revisions_max, bytes_max)
        if found and not getattr(poll, "done", False):
            poll.done = True  # type: ignore[attr-defined]
            self.forget(watcher)
            watcher._next = first
        return found

    return poll


@pytest.mark.parametrize(("method", "plant", "fault"), [("_wake", skipping, "a gap"), ("poll", repeating, "twice")])
def test_checker_detects_planted_faults(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, method: str, plant: Any, fault: str
) -> None:
    monkeypatch.setattr(watch.WatchHub, method, plant(getattr(watch.WatchHub, method)))
    watcher = driver.store.watches.open(WatchRequest(b"a"))
    news = drain(watcher)
    driver.all(Put(b"a"), Put(b"a"))
    news += drain(watcher)
    found = fault_in(sorted(news, key=lambda part: part.revision), [(2, [b"a"]), (3, [b"a"])])
    assert found is not None
    assert found.startswith(fault)
