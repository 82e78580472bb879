"""Watches: every change of a key or range, in order, once, without gaps (M4).

A watcher pulls. It holds the next revision to read, and reads the events from REVISION, where they stay until MM passes
them; so a slow watcher costs nothing, stalls nothing and loses nothing. If compaction has overtaken it, it gets MM as
an error: never a silent gap.

A watcher that has seen everything *sleeps*: it is found by the keys of the next batch that touches it, and woken once.
While it sleeps it is, by definition, up to date with every revision, also those that it has never read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from palisade.metastore.errors import FutureRevision, InvalidRequest
from palisade.metastore.history import Event as Rows
from palisade.metastore.history import History, is_tombstone
from palisade.metastore.mvcc import compacted
from palisade.metastore.record import unpack_row
from palisade.metastore.requests import FROM_KEY, WatchRequest
from palisade.metastore.results import Event, KeyValue, RevisionEvents
from palisade.metastore.state import StoreState

FILTERS = frozenset(("put", "delete"))
EVENT_BYTES = 64
Interest = tuple[bytes, bytes]


class Watcher:
    """One watch. Poll until it sleeps, then wait for `on_news`, then poll again."""

    __slots__ = ("_hub", "_next", "on_news", "request", "sleeping")

    def __init__(self, hub: WatchHub, request: WatchRequest, first: int, on_news: Callable[[], None] | None) -> None:
        self._hub = hub
        self._next = first
        self.request = request
        self.on_news = on_news
        self.sleeping = False

    @property
    def next_revision(self) -> int:
        """Where a continuation of this watch has to start. Never below the requested start."""
        return max(self._next, self._hub.revision + 1) if self.sleeping else self._next

    @property
    def progress(self) -> int:
        """Every matching event up to this revision was returned (progress notification)."""
        return min(self.next_revision - 1, self._hub.revision)

    def poll(self, revisions_max: int = 1000, bytes_max: int = 1 << 20) -> tuple[RevisionEvents, ...]:
        """The next events, in whole revisions, after reading at most `revisions_max` revisions.

        An empty result does not mean that there are no more: see `sleeping`. Stops after the revision that exceeds
        `bytes_max`. Raises Compacted (with MM) if the next revision is below MM: the watch ends.
        """
        return self._hub.poll(self, revisions_max, bytes_max)

    def advance(self, revision: int) -> None:
        """Everything below `revision` was read."""
        self._next = max(self._next, revision)

    def close(self) -> None:
        """No more wakes. A closed watcher can be dropped."""
        self._hub.forget(self)
        self.on_news = None


class WatchHub:
    """All sleeping watchers by key or range. Active ones are known only to their owners."""

    __slots__ = ("_history", "_state", "by_key", "by_range")

    def __init__(self, history: History, state: StoreState) -> None:
        self._history = history
        self._state = state
        self.by_key: dict[bytes, dict[Watcher, None]] = {}
        self.by_range: dict[Interest, dict[Watcher, None]] = {}

    @property
    def revision(self) -> int:
        return self._state.revision

    def open(self, request: WatchRequest, on_news: Callable[[], None] | None = None) -> Watcher:
        """A watcher from `start_revision` on (0: after the present one; may lie in the future).

        `on_news` is called, from inside `apply`, once after each time that the watcher has fallen asleep. Raises
        Compacted when the start is below MM, InvalidRequest for an empty key, a negative start, an unknown filter.
        """
        if not request.key:
            raise InvalidRequest("the key of a watch is empty: all keys are the range from the byte 0x00 to 0x00")
        if request.start_revision < 0:
            raise InvalidRequest(f"a watch can't start at revision {request.start_revision}: use 0 for now")
        if not request.filters <= FILTERS:
            raise InvalidRequest(f"unknown filters {sorted(request.filters - FILTERS)}: a watch knows put and delete")
        start = request.start_revision or self.revision + 1
        if start < self._state.minimal_revision:
            raise compacted(start, self._state.minimal_revision)
        return Watcher(self, request, start, on_news)

    def poll(self, watcher: Watcher, revisions_max: int, bytes_max: int) -> tuple[RevisionEvents, ...]:
        if watcher.sleeping:
            return ()
        first = watcher.next_revision
        if first < self._state.minimal_revision:
            raise compacted(first, self._state.minimal_revision)
        found: list[RevisionEvents] = []
        size = 0
        last = min(first + revisions_max - 1, self.revision)
        for revision, rows in self._history.revisions(first, last):
            events = events_of(rows, revision, watcher.request, self._state)
            watcher.advance(revision + 1)
            if events:
                found.append(RevisionEvents(revision, events))
                size += sum(map(size_of, events))
                if size >= bytes_max:
                    break
        else:
            watcher.advance(last + 1)
        if watcher.next_revision > self.revision:
            self._sleep(watcher)
        return tuple(found)

    def _sleep(self, watcher: Watcher) -> None:
        watcher.sleeping = True
        self._waiting(watcher)[watcher] = None

    def _waiting(self, watcher: Watcher) -> dict[Watcher, None]:
        request = watcher.request
        if not request.range_end:
            return self.by_key.setdefault(request.key, {})
        return self.by_range.setdefault((request.key, request.range_end), {})

    def forget(self, watcher: Watcher) -> None:
        watcher.advance(watcher.next_revision)
        watcher.sleeping = False
        self._drop_empty(watcher)

    def _drop_empty(self, watcher: Watcher) -> None:
        waiting = self._waiting(watcher)
        waiting.pop(watcher, None)
        if waiting:
            return
        if watcher.request.range_end:
            del self.by_range[watcher.request.key, watcher.request.range_end]
        else:
            del self.by_key[watcher.request.key]

    def notify(self, changed: Sequence[bytes], before: int) -> None:
        """Keys were written since revision `before`: wake the sleepers that wait for one of them."""
        woken = [watcher for key in changed if key in self.by_key for watcher in self.by_key[key]]
        if self.by_range:
            keys = sorted(changed)
            touched = [interest for interest in self.by_range if touches(keys, *interest)]
            woken += [watcher for interest in touched for watcher in self.by_range[interest]]
        if woken:
            self._wake(dict.fromkeys(woken), before)

    def notify_all(self, before: int) -> None:
        """The whole state was replaced (a snapshot) after revision `before`."""
        everyone = [w for waiting in (*self.by_key.values(), *self.by_range.values()) for w in waiting]
        self._wake(dict.fromkeys(everyone), before)

    def _wake(self, watchers: dict[Watcher, None], before: int) -> None:
        for watcher in watchers:
            watcher.advance(before + 1)
            watcher.sleeping = False
            self._drop_empty(watcher)
        for watcher in watchers:
            if watcher.on_news is not None:
                watcher.on_news()

    def events(self, request: WatchRequest, revision: int) -> RevisionEvents:
        """The events of one retained revision for a watch. Raises Compacted, FutureRevision."""
        if revision < self._state.minimal_revision:
            raise compacted(revision, self._state.minimal_revision)
        if revision > self.revision:
            raise FutureRevision(f"revision {revision} is a future revision: the store is at {self.revision}")
        for _, rows in self._history.revisions(revision, revision):
            return RevisionEvents(revision, events_of(rows, revision, request, self._state))
        return RevisionEvents(revision, ())


def touches(keys: Sequence[bytes], start: bytes, range_end: bytes) -> bool:
    """Whether one of the sorted keys is in the range."""
    position = bisect_left(keys, start)
    return position < len(keys) and (range_end == FROM_KEY or keys[position] < range_end)


def size_of(event: Event) -> int:
    return len(event.kv.key) + len(event.kv.value) + EVENT_BYTES


def events_of(rows: Sequence[Rows], revision: int, request: WatchRequest, state: StoreState) -> tuple[Event, ...]:
    """The matching events of a retained revision, in order."""
    found = (event_of(row, replaced, revision, request, state) for row, replaced in rows)
    return tuple(event for event in found if event is not None)


def event_of(packed: bytes, replaced: bytes, revision: int, request: WatchRequest, state: StoreState) -> Event | None:
    """None if the event does not match the request."""
    row, delete = unpack_row(packed), is_tombstone(packed)
    if not matches(request, row.key) or ("delete" if delete else "put") in request.filters:
        return None
    kv = KeyValue(row.key, b"", 0, revision, 0, 0) if delete else row.as_key_value()
    return Event(delete, kv, previous_of(replaced, revision, state) if request.prev_kv else None)


def matches(request: WatchRequest, key: bytes) -> bool:
    if not request.range_end:
        return key == request.key
    return key >= request.key and (request.range_end == FROM_KEY or key < request.range_end)


def previous_of(replaced: bytes, revision: int, state: StoreState) -> KeyValue | None:
    """The replaced version; None for a new key, and at MM itself, below which all is compacted (as in etcd)."""
    if not replaced or is_tombstone(replaced) or revision <= state.compacted:
        return None
    return unpack_row(replaced).as_key_value()
