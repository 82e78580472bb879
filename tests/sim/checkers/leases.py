"""Leases (M5): attached keys exist as long as promised, are deleted in one revision, and are deleted in time.

- Not too early: counted from the request of the last acknowledged grant or keep-alive.
- Together: all its keys are deleted in the revision in which the first of them expires.
- In time: while revisions are committed one after the other a leader serves, and its clock continues; a pause does not
  count, since the replicated clock stands still then (`metastore/state.py`).
- At once if revoked: after the acknowledgement no read returns an attached key.

A delete by a client, even a possible one, is no end of a lease. Announcements of data nodes are not judged: the nodes
delete them, too, and no history records that.
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
from tests.sim.seen import FENCED, Committed, Ended, Ok, Operation, Path, WatchDelivered
from tests.sim.segment_states import ANNOUNCED
from tests.sim.truth import Truth
from tests.support.store_rules import inside

ROUNDING = 0.002
DRIFT = 0.011
"""Of clocks with an error of at most 1 % each, which is what the product allows."""
SLACK_S = 0.01
PAUSE_S = 0.5
"""Time between two revisions beyond this may have passed without a leader."""
BOUND_S = 1.5
"""From the expiry of a lease to the deletion of its keys, while a leader serves: it checks ten times a second."""
STRICT = b"s/"


class Lease(NamedTuple):
    """`asked_s`, `answered_s`: request and response of the last acknowledged renewal. `unsure`: another may have been
    executed."""

    ttl_s: float
    asked_s: float
    answered_s: float
    unsure: bool


def check(history: History, drift: float = DRIFT) -> list[str]:
    """`drift`: the relative error that the length of a lease may have."""
    leases = _Leases(history, drift)
    return [*leases.ends(leases.at_s.__getitem__), *leases.overdue(), *leases.revoked()]


def of_clients(history: History) -> list[str]:
    """Without known commit times, when the revisions of the history are ordered as early as possible: a revision was
    committed by the time a client got it. Thus an early end may remain undetected, and none counts as overdue."""
    leases = _Leases(history)
    return [*leases.ends(_answered_s(history)), *leases.revoked()]


def _answered_s(history: History) -> Callable[[int], float]:
    """When a client first got a revision, or a later one; never: infinity."""
    revisions, times = list[int](), list[float]()
    for event in history.events:
        match event:
            case Ended(outcome=Ok(result)):
                reported = getattr(result, "revision", 0)
            case WatchDelivered(batch=batch) if batch:
                reported = batch[-1].revision
            case _:
                continue
        if reported > (revisions[-1] if revisions else 0):
            revisions.append(reported)
            times.append(event.at.at_s)

    def answered_s(revision: int) -> float:
        place = bisect_left(revisions, revision)
        return times[place] if place < len(times) else math.inf

    return answered_s


def drift_of(wrong: float) -> float:
    """With clocks that are each wrong by at most this much."""
    return wrong / (1 - wrong) + ROUNDING


class _Leases:
    def __init__(self, history: History, drift: float = DRIFT) -> None:
        self._truth, self._history, self._drift = Truth(history), history, drift
        self._requests = by_request(history)
        committed = [event for event in history.events if isinstance(event, Committed)]
        self.at_s = {event.events.revision: event.at.at_s for event in committed}
        attached = {each.kv.key for event in committed for each in event.events.events if each.kv.lease}
        self._keys = sorted(key for key in attached if not key.startswith(ANNOUNCED))
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
        """The keys attached to it."""
        rows = ((key, self._truth.at(key, revision)) for key in self._keys)
        return [key for key, kv in rows if kv is not None and kv.lease == lease]

    # Ends

    def ends(self, ended_s: Callable[[int], float]) -> Iterator[str]:
        """Ends that are too early, or not all together. `ended_s`: when a revision was committed, or later."""
        for lease, revision in self._ended():
            left = self._on(lease, revision)
            if left:
                yield f"lease {lease} ends at revision {revision}, and {left} are still attached to it"
            granted, at_s = self._granted.get(lease), ended_s(revision)
            if granted is None or self._revokes.get(lease, at_s) < at_s:
                continue
            lived_s = at_s - granted.asked_s
            if lived_s < granted.ttl_s * (1 - self._drift) - SLACK_S:
                yield f"lease {lease} of {granted.ttl_s} s ends {lived_s:.3f} s after it was renewed, at {revision}"

    def _ended(self) -> list[tuple[int, int]]:
        """(lease, revision) of each change that deletes attached keys and is no delete of a client."""
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
        """Revisions of acknowledged deletes; keys of deletes without a response."""
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
        """Leases that expired more than the allowed time ago."""
        revisions = sorted(self.at_s)
        times = [self.at_s[revision] for revision in revisions]
        served = [0.0]
        for before, now in pairwise(times):
            served.append(served[-1] + (now - before if now - before <= PAUSE_S else 0.0))
        for lease, granted in self._granted.items():
            first = bisect_left(times, granted.answered_s)
            if granted.unsure or first == len(times):
                continue
            place = bisect_right(served, served[first] + granted.ttl_s * (1 + self._drift) + BOUND_S)
            if place < len(revisions) and (left := self._on(lease, revisions[place])):
                yield (
                    f"lease {lease} of {granted.ttl_s} s was renewed at {granted.answered_s:.3f} s the last time, and "
                    f"{left} are attached to it at {times[place]:.3f} s, revision {revisions[place]}"
                )

    # Revokes

    def revoked(self) -> Iterator[str]:
        for attempts in self._requests:
            request, answer = attempts[0].request, _answer(attempts)
            if not isinstance(request, LeaseRevoke) or answer is None or answer.ended is None:
                continue
            left = self._on(request.id, answer.result.revision)
            if left:
                yield f"lease {request.id} was revoked by revision {answer.result.revision}, {left} are still attached"
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
    """The first one that reports success."""
    return next((each for each in attempts if isinstance(each.outcome, Ok)), None)


def _renewed(lease: Lease, attempts: list[Operation], answer: Operation | None) -> Lease:
    if answer is None or answer.ended is None:
        return lease._replace(unsure=lease.unsure or not all(each.refused for each in attempts))
    asked_s, answered_s = attempts[0].began.at_s, answer.ended.at_s
    return lease._replace(asked_s=max(lease.asked_s, asked_s), answered_s=max(lease.answered_s, answered_s))


def _deleted_by(request: Any) -> Iterator[tuple[bytes, bytes]]:
    match request:
        case DeleteRange():
            yield request.key, request.range_end
        case Txn():
            for part in (*request.success, *request.failure):
                yield from _deleted_by(part)


def _newest_shown(operation: Operation, lease: int) -> Iterator[bytes]:
    """Keys of a lease in a read that must return the newest state."""
    request, result = operation.request, operation.result
    assert isinstance(request, Range)
    local = operation.path is Path.LOCAL or request.serializable or operation.of_the_past
    if local or not isinstance(result, RangeResult):
        return
    for kv in result.kvs:
        if kv.lease == lease and (operation.path not in FENCED or kv.key.startswith(STRICT)):
            yield kv.key
