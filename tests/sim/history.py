"""What clients saw: requests, their outcomes, events of watches, in one total order (issue 5, "all recorded").

The order is an integer, the place in the list of events, in addition to the simulated time: two events of the same
instant have an order as well, because a simulation is one thread. An operation that ended before another one began has
a smaller order at its end than the other at its beginning; that is the real-time order of linearizability.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from palisade.metastore.requests import RequestId, WatchRequest
from palisade.metastore.results import RangeResult, RevisionEvents
from tests.sim.seen import (
    Begun,
    Committed,
    Ended,
    Ending,
    Event,
    Final,
    Moment,
    Operation,
    Outcome,
    Path,
    Request,
    Restored,
    WatchAsked,
    WatchBegan,
    WatchDelivered,
    WatchEnded,
    WatchEvent,
    WatchProgressed,
)


class NotBegun(AssertionError):
    """An event of an operation that was never begun, or is over: the recording is wrong."""


class History:
    """`now`: the simulated time in seconds. Numbers of operations and watches count from 1, in one sequence."""

    def __init__(self, now: Callable[[], float] = lambda: 0.0) -> None:
        self.events: list[Event] = []
        self._now = now
        self._numbers = 0
        self._operations: dict[int, Operation] = {}
        self._ended: list[Operation] = []
        """Those that `latest` has not looked at."""
        self._latest = 0
        self._watches: dict[int, bool] = {}
        """Whether each is still open."""

    @staticmethod
    def of(events: Iterable[Event]) -> History:
        """A history recorded elsewhere: `events` in their order."""
        history = History()
        for event in events:
            if event.at.order != len(history.events):
                raise NotBegun(f"{event} is at place {len(history.events)} of its history")
            history._keep(event)
        return history

    def _moment(self) -> Moment:
        return Moment(len(self.events), self._now())

    def _keep(self, event: Event) -> None:
        match event:
            case Begun():
                self._operations[event.number] = _opened(event)
            case Ended():
                self._operations[event.number] = closed = self._closed(event)
                self._ended.append(closed)
            case WatchAsked():
                self._watches[event.number] = True
            case WatchBegan() | WatchDelivered() | WatchProgressed() | WatchEnded():
                if not self._watches.get(event.number):
                    raise NotBegun(f"there is no watch of this number that goes on: {event}")
                self._watches[event.number] = not isinstance(event, WatchEnded)
        self._numbers = max(self._numbers, getattr(event, "number", 0))
        self.events.append(event)

    def _closed(self, event: Ended) -> Operation:
        operation = self._operations.get(event.number)
        if operation is None or operation.ended is not None:
            raise NotBegun(f"there is no operation of this number that goes on: {event}")
        return replace(operation, ended=event.at, outcome=event.outcome)

    # Operations

    def begin(
        self,
        client: str,
        node: str,
        path: Path,
        request: Request,
        request_id: RequestId | None = None,
        attempt: int = 1,
    ) -> int:
        """Before it is sent. Returns its number, for `end`; an operation that never ends stays open."""
        number = self._numbers + 1
        self._keep(Begun(self._moment(), number, client, node, path, request, request_id, attempt))
        return number

    def end(self, number: int, outcome: Outcome) -> None:
        """When the client gets the outcome."""
        self._keep(Ended(self._moment(), number, outcome))

    def operations(self) -> tuple[Operation, ...]:
        """In the order in which they began."""
        return tuple(self._operations.values())

    def latest(self, revisions_of: Callable[[Operation], Iterable[int]]) -> int:
        """The latest revision of all operations that have ended; 0 if there is none. Each is looked at once, so
        `revisions_of` has to be the same function in each call."""
        for operation in self._ended:
            self._latest = max(self._latest, *revisions_of(operation), 0)
        self._ended.clear()
        return self._latest

    # Watches

    def watch(self, client: str, node: str, request: WatchRequest, resumes: int = 0) -> int:
        """Before it is requested. Returns its number, for the other events."""
        number = self._numbers + 1
        self._keep(WatchAsked(self._moment(), number, client, node, request, resumes))
        return number

    def watch_began(self, number: int, revision: int) -> None:
        self._keep(WatchBegan(self._moment(), number, revision))

    def delivered(self, number: int, batch: tuple[RevisionEvents, ...]) -> None:
        self._keep(WatchDelivered(self._moment(), number, batch))

    def progressed(self, number: int, revision: int) -> None:
        self._keep(WatchProgressed(self._moment(), number, revision))

    def watch_ended(self, number: int, ending: Ending, minimal_revision: int = 0) -> None:
        self._keep(WatchEnded(self._moment(), number, ending, minimal_revision))

    def watches(self) -> dict[int, list[WatchEvent]]:
        """The events of each watch, by its number."""
        found: dict[int, list[WatchEvent]] = {}
        for event in self.events:
            if isinstance(event, WatchAsked | WatchBegan | WatchDelivered | WatchProgressed | WatchEnded):
                found.setdefault(event.number, []).append(event)
        return found

    # Events of the world

    def committed(self, events: RevisionEvents) -> None:
        """Once for each revision, when the first node has applied it, in the order of revisions."""
        self._keep(Committed(self._moment(), events))

    def restored(self, past: Iterable[RevisionEvents], revision: int, generation: int) -> None:
        """The first event. `past`: all changes committed up to `revision`."""
        self._keep(Restored(self._moment(), revision, generation))
        for events in past:
            self.committed(events)

    def final(self, node: str, result: RangeResult) -> None:
        self._keep(Final(self._moment(), node, result))

    def revisions(self) -> tuple[RevisionEvents, ...]:
        """All commits, in their recorded order."""
        return tuple(event.events for event in self.events if isinstance(event, Committed))

    def finals(self) -> tuple[Final, ...]:
        return tuple(event for event in self.events if isinstance(event, Final))


def _opened(event: Begun) -> Operation:
    return Operation(
        event.number,
        event.client,
        event.node,
        event.path,
        event.request,
        event.request_id,
        event.attempt,
        event.at,
    )
