"""Leases (M5): what hangs on one is there as long as it was promised, goes in one revision, and does go.

- Not before its time: counted from when the last acknowledged grant or keep-alive was asked for.
- Together: all its keys are gone in the revision in which the first of them goes by itself.
- In time: while revisions are committed one after the other a leader serves, and its clock goes on; a pause counts for
  nothing, as the replicated clock stands still then (`metastore/state.py`).
- At once where it was revoked: behind the answer nobody is shown anything that hangs on it.

What a client has deleted, or may have, is no end of a lease.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from palisade.metastore.requests import DeleteRange, LeaseGrant, LeaseKeepAlive, LeaseRevoke, Range, Txn
from palisade.metastore.results import RangeResult
from tests.sim.checkers.durable import deletes
from tests.sim.checkers.exactly_once import by_request
from tests.sim.history import History
from tests.sim.kv_spans import inside
from tests.sim.seen import FENCED, Committed, Ended, Ok, Operation, Path, WatchDelivered
from tests.sim.truth import Truth

ROUNDING = 0.002
DRIFT = 0.011
"""Of clocks that are each wrong by at most 1 %, which is what the product allows."""
SLACK_S = 0.01
PAUSE_S = 0.5
"""What passes between two revisions, where that is more, may have passed without a leader."""
BOUND_S = 1.5
"""From the end of a lease to that of its keys, while a leader serves: it looks ten times a second."""
STRICT = b"s/"


class Lease(NamedTuple):
    """`asked_s`, `told_s`: when the last acknowledged renewal was asked for, and answered. `unsure`: another one may
    have been done."""

    ttl_s: int
    asked_s: float
    told_s: float
    unsure: bool


def check(history: History, drift: float = DRIFT) -> list[str]:
    """`drift`: how much longer or shorter than it says a lease may be, as a part of it."""
    leases = _Leases(history, drift)
    return [*leases.ends(leases.at_s.__getitem__), *leases.overdue(), *leases.revoked()]


def of_clients(history: History) -> list[str]:
    """Where it is not known when a revision was committed, and those of the history stand as early as can be: it was by
    the time a client was told of it. So an end may be too early that is not seen to be, and none is overdue."""
    leases = _Leases(history)
    return [*leases.ends(_told_s(history)), *leases.revoked()]


def _told_s(history: History) -> Callable[[int], float]:
    """When a client was first told of a revision, or of one behind it; never: infinity."""
    revisions, times = list[int](), list[float]()
    for event in history.events:
        match event:
            case Ended(outcome=Ok(result)):
                told = getattr(result, "revision", 0)
            case WatchDelivered(batch=batch) if batch:
                told = batch[-1].revision
            case _:
                continue
        if told > (revisions[-1] if revisions else 0):
            revisions.append(told)
            times.append(event.at.at_s)

    def told_s(revision: int) -> float:
        place = bisect_left(revisions, revision)
        return times[place] if place < len(times) else math.inf

    return told_s


def drift_of(wrong: float) -> float:
    """Where each clock is wrong by so much at most."""
    return wrong / (1 - wrong) + ROUNDING


class _Leases:
    def __init__(self, history: History, drift: float = DRIFT) -> None:
        self._truth, self._history, self._drift = Truth(history), history, drift
        self._requests = by_request(history)
        committed = [event for event in history.events if isinstance(event, Committed)]
        self.at_s = {event.events.revision: event.at.at_s for event in committed}
        self._keys = sorted({each.kv.key for event in committed for each in event.events.events if each.kv.lease})
        self._granted = self._renewals()
        self._revokes: dict[int, float] = {}
        for attempts in self._requests:
            if isinstance(attempts[0].request, LeaseRevoke):
                self._revokes.setdefault(attempts[0].request.id, attempts[0].began.at_s)

    def _renewals(self) -> dict[int, Lease]:
        found: dict[int, Lease] = {}
        for attempts in self._requests:
            request, answer = attempts[0].request, _answer(attempts)
            if isinstance(request, LeaseGrant) and answer is not None and answer.ended is not None:
                result = answer.result
                found[result.id] = Lease(result.ttl_s, attempts[0].began.at_s, answer.ended.at_s, unsure=False)
        for attempts in self._requests:
            request, answer = attempts[0].request, _answer(attempts)
            if isinstance(request, LeaseKeepAlive) and request.id in found:
                found[request.id] = _renewed(found[request.id], attempts, answer)
        return found

    def _on(self, lease: int, revision: int) -> list[bytes]:
        """What hangs on it."""
        rows = ((key, self._truth.at(key, revision)) for key in self._keys)
        return [key for key, kv in rows if kv is not None and kv.lease == lease]

    # Ends

    def ends(self, ended_s: Callable[[int], float]) -> Iterator[str]:
        """Too early, or not all together. `ended_s`: when a revision was committed, or later."""
        for lease, revision in self._ended():
            left = self._on(lease, revision)
            if left:
                yield f"lease {lease} ends at revision {revision}, and {left} still hang on it"
            granted, at_s = self._granted.get(lease), ended_s(revision)
            if granted is None or self._revokes.get(lease, at_s) < at_s:
                continue
            lived_s = at_s - granted.asked_s
            if lived_s < granted.ttl_s * (1 - self._drift) - SLACK_S:
                yield f"lease {lease} of {granted.ttl_s} s ends {lived_s:.3f} s after it was renewed, at {revision}"

    def _ended(self) -> list[tuple[int, int]]:
        """(lease, revision) of each change in which keys went and no client deletes them."""
        by_clients, perhaps = self._deletes()
        found = {
            (before.lease, revision): None
            for revision, events in self._truth.revisions.items()
            if revision > self._truth.base and revision not in by_clients
            for event in events.events
            if event.delete and event.kv.key in self._keys
            if not any(inside(event.kv.key, start, end) for start, end in perhaps)
            if (before := self._truth.at(event.kv.key, revision - 1)) is not None and before.lease
        }
        return list(found)

    def _deletes(self) -> tuple[set[int], list[tuple[bytes, bytes]]]:
        """Revisions of those that were answered; what those delete that were not."""
        revisions: set[int] = set()
        spans: list[tuple[bytes, bytes]] = []
        for attempts in self._requests:
            answer = _answer(attempts)
            if answer is not None and deletes(answer.result):
                revisions.add(answer.result.revision)
            elif answer is None and not all(each.refused for each in attempts):
                spans += _deleted_by(attempts[0].request)
        return revisions, spans

    def overdue(self) -> Iterator[str]:
        """Those whose time is over, and more."""
        revisions = sorted(self.at_s)
        times = [self.at_s[revision] for revision in revisions]
        served = [0.0]
        for before, now in pairwise(times):
            served.append(served[-1] + (now - before if now - before <= PAUSE_S else 0.0))
        for lease, granted in self._granted.items():
            first = bisect_left(times, granted.told_s)
            if granted.unsure or first == len(times):
                continue
            place = bisect_right(served, served[first] + granted.ttl_s * (1 + self._drift) + BOUND_S)
            if place < len(revisions) and (left := self._on(lease, revisions[place])):
                yield (
                    f"lease {lease} of {granted.ttl_s} s was renewed at {granted.told_s:.3f} s for the last time, and "
                    f"{left} hang on it at {times[place]:.3f} s, revision {revisions[place]}"
                )

    # Revokes

    def revoked(self) -> Iterator[str]:
        for attempts in self._requests:
            request, answer = attempts[0].request, _answer(attempts)
            if not isinstance(request, LeaseRevoke) or answer is None or answer.ended is None:
                continue
            left = self._on(request.id, answer.result.revision)
            if left:
                yield f"lease {request.id} was revoked by revision {answer.result.revision}, and {left} hang on it"
            yield from self._shown_behind(request.id, answer.ended.order)

    def _shown_behind(self, lease: int, order: int) -> Iterator[str]:
        for operation in self._history.operations():
            if operation.began.order > order and operation.is_read:
                for key in _newest_shown(operation, lease):
                    yield (
                        f"operation {operation.number} of {operation.client} ({operation.path.value} at "
                        f"{operation.node}) was shown {key!r} of lease {lease}, which was revoked before"
                    )


def _answer(attempts: list[Operation]) -> Operation | None:
    """The first one that says that it was done."""
    return next((each for each in attempts if isinstance(each.outcome, Ok)), None)


def _renewed(lease: Lease, attempts: list[Operation], answer: Operation | None) -> Lease:
    if answer is None or answer.ended is None:
        return lease._replace(unsure=lease.unsure or not all(each.refused for each in attempts))
    asked_s, told_s = attempts[0].began.at_s, answer.ended.at_s
    return lease._replace(asked_s=max(lease.asked_s, asked_s), told_s=max(lease.told_s, told_s))


def _deleted_by(request: Any) -> Iterator[tuple[bytes, bytes]]:
    match request:
        case DeleteRange():
            yield request.key, request.range_end
        case Txn():
            for part in (*request.success, *request.failure):
                yield from _deleted_by(part)


def _newest_shown(operation: Operation, lease: int) -> Iterator[bytes]:
    """Keys of a lease, by a read that is promised to show the newest."""
    request, result = operation.request, operation.result
    assert isinstance(request, Range)
    local = operation.path is Path.LOCAL or request.serializable or operation.of_the_past
    if local or not isinstance(result, RangeResult):
        return
    for kv in result.kvs:
        if kv.lease == lease and (operation.path not in FENCED or kv.key.startswith(STRICT)):
            yield kv.key
