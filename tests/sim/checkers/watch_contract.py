"""Watches: every change of the requested keys, in order, once, a revision never split, none missing (M4).

No event is from before the start; progress never claims an undelivered event; a watch that continues another one begins
where that one ended; only revisions below MM are refused as compacted. A break of history ends no watch that began
after it; those that began before it are in no history (`streaming.LastingWatcher`).
"""

from __future__ import annotations

from collections.abc import Iterator

from palisade.metastore.requests import WatchRequest
from palisade.metastore.results import Event, RevisionEvents
from tests.sim.history import History
from tests.sim.seen import (
    Ending,
    WatchAsked,
    WatchBegan,
    WatchDelivered,
    WatchEnded,
    WatchEvent,
    WatchProgressed,
)
from tests.sim.truth import Truth
from tests.support.store_rules import inside


def check(history: History) -> list[str]:
    truth = Truth(history)
    next_revisions: dict[int, int] = {}
    found: list[str] = []
    for number, events in history.watches().items():
        watch = _Watch(truth, events)
        found += watch.check(next_revisions)
        next_revisions[number] = watch.next_revision
    return found


class _Watch:
    """`next_revision`: the first that the client has not received, as far as it knows; 0 while it does not know any."""

    def __init__(self, truth: Truth, events: list[WatchEvent]) -> None:
        asked = events[0]
        assert isinstance(asked, WatchAsked)
        self._truth, self._asked, self._events = truth, asked, events[1:]
        self._request: WatchRequest = asked.request
        self.next_revision = asked.request.start_revision

    def _named(self) -> str:
        return f"watch {self._asked.number} of {self._asked.client} at {self._asked.node}"

    def check(self, before: dict[int, int]) -> Iterator[str]:
        earlier = before.get(self._asked.resumes, 0)
        if earlier and self._request.start_revision != earlier:
            yield f"{self._named()} goes on at {self._request.start_revision}, the one before had come to {earlier}"
        for event in self._events:
            match event:
                case WatchBegan():
                    self.next_revision = self.next_revision or event.revision + 1
                    if event.revision > self._committed_by(event.at.order):
                        yield f"{self._named()} began at revision {event.revision}, which no node had committed"
                case WatchDelivered():
                    for events in event.batch:
                        yield from self._delivered(events, event.at.order)
                case WatchProgressed():
                    yield from self._progressed(event)
                case WatchEnded(ending=Ending.COMPACTED):
                    if event.minimal_revision <= self.next_revision:
                        yield (
                            f"{self._named()} was refused with {self.next_revision} as compacted, "
                            f"and MM is {event.minimal_revision}"
                        )
                case WatchEnded(ending=Ending.OTHER_HISTORY):
                    yield f"{self._named()} was ended because of another history, and it began in this one"

    def _committed_by(self, order: int) -> int:
        return max((revision for revision, at in self._truth.orders.items() if at < order), default=1)

    def _delivered(self, events: RevisionEvents, order: int) -> Iterator[str]:
        revision = events.revision
        if revision < self.next_revision:
            yield f"{self._named()} got {revision}, and should continue at {self.next_revision}"
            return
        yield from self._skipped(revision)
        self.next_revision = revision + 1
        if self._truth.orders.get(revision, order) >= order:
            yield f"{self._named()} got {revision} before any node had committed it"
            return
        expected, delivered = self._wanted(revision), tuple(map(self._shown, events.events))
        if delivered != expected:
            yield f"{self._named()} got {revision} as {delivered}, committed was {expected}"
        yield from self._previous(events)

    def _skipped(self, until: int) -> Iterator[str]:
        for revision in range(max(1, self.next_revision), until):
            if self._wanted(revision):
                yield f"{self._named()} did not get {revision}, and then got {until}"

    def _progressed(self, event: WatchProgressed) -> Iterator[str]:
        for revision in range(max(1, self.next_revision), event.revision + 1):
            if self._wanted(revision):
                yield f"{self._named()} got progress up to {event.revision}, but not revision {revision}"
        if event.revision > self._committed_by(event.at.order):
            yield f"{self._named()} got progress to {event.revision}, which no node had committed"
        self.next_revision = max(self.next_revision, event.revision + 1)

    def _wanted(self, revision: int) -> tuple[Event, ...]:
        """The expected events of a revision, without previous values."""
        committed = self._truth.revisions.get(revision)
        request = self._request
        if committed is None:
            return ()
        return tuple(
            self._shown(event)
            for event in committed.events
            if inside(event.kv.key, request.key, request.range_end)
            and ("delete" if event.delete else "put") not in request.filters
        )

    @staticmethod
    def _shown(event: Event) -> Event:
        return event._replace(prev_kv=None)

    def _previous(self, events: RevisionEvents) -> Iterator[str]:
        for event in events.events:
            before = self._truth.at(event.kv.key, events.revision - 1)
            if event.prev_kv is not None and (not self._request.prev_kv or event.prev_kv != before):
                yield f"{self._named()} got {event.prev_kv} as the previous {event.kv.key!r} of {events.revision}"
