"""The leader's side of fencing: grants, and up to which revision changes may be shown (RR, the released revision).

A strict revision is released once no registered holder can serve what it replaced (`verdict.py`, `registry.py`). RR
moves over the revisions in order. A released revision stays released under any later leader, so releases are never
revoked. RR itself is not stored. A new leader knows RR once everything committed before its term is proven released,
which takes an answer of each holder, or at most T_proceed of its own term.

Safety depends on the order of calls. `committed` comes before the revision is announced to anyone, and before any grant
that has to require it. A grant is recorded before it is sent. There is no grant without a quorum lease, so none after
another leader was elected. `DESIGN.md` has the proof.

The cost of a commit does not depend on the number of holders, and that of an acknowledgement not on the number of
waiting revisions.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from palisade.fencing.errors import InvariantBroken, NotLeading
from palisade.fencing.messages import FencedMessage, GrantMessage, Hello, HolderId, Renew
from palisade.fencing.registry import HolderStanding, Registration, Registry
from palisade.fencing.timing import FenceTiming
from palisade.fencing.verdict import Verdict, VerdictOutcome, judge, overall

__all__ = ["NotGranted", "Registration", "ReleaseWait", "ReleasedState", "Releases"]


FINISHED_MAX = 10_000


class NotGranted(enum.Enum):
    """Why a holder gets no lease now."""

    NOT_LEADING = "this node does not lead"
    NO_QUORUM_LEASE = "the leader does not hold the quorum lease"
    NOT_REGISTERED = "the holder is not registered with this vault"
    LEAVING = "the holder is being removed"
    OTHER_TIMES = "the holder is registered with a shorter lease than requested; the registration is replaced first"
    OLD_INCARNATION = "superseded by a later process of this node"
    NOT_ASKED = "the holder did not request a lease"


@dataclass(slots=True)
class ReleaseBatch:
    """Revisions that were committed together. `first` and `last` are strict; those between need not be."""

    first: int
    last: int
    at: float


@dataclass(frozen=True, slots=True)
class ReleaseWait:
    """A batch that is committed and not released."""

    first: int
    last: int
    since: float
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class ReleasedState:
    """A batch that was released, after `waited_s`. `by_fence`: not all holders had acknowledged it."""

    first: int
    last: int
    waited_s: float
    by_fence: bool


class Releases:
    """One per node; leads from `begin_term` to `end_term`. All times are of the leader's own clock."""

    __slots__ = (
        "_finished",
        "_lm",
        "_registry",
        "_rr",
        "_strict_latest",
        "_strict_released",
        "_term",
        "_timing",
        "_waiting",
    )

    def __init__(self, timing: FenceTiming) -> None:
        self._timing = timing
        self._registry = Registry(timing)
        self._waiting: deque[ReleaseBatch] = deque()
        self._finished: deque[ReleasedState] = deque(maxlen=FINISHED_MAX)
        self._term: int | None = None
        self._rr: int | None = None
        self._lm = 0
        self._strict_latest = self._strict_released = 0

    # The term

    def begin_term(self, term: int, now: float, registered: Iterable[Registration], lm: int) -> None:
        """Call when this node leads `term` and has applied the first commit of its term, and so everything committed
        before: revisions up to `lm`, and the records of `registered`."""
        self.end_term()
        self._term = term
        self._registry.begin(registered, now)
        self._lm = self._strict_latest = lm
        if lm:
            self._waiting.append(ReleaseBatch(1, lm, now))
        else:
            self._rr = 0

    def end_term(self) -> None:
        """Call when leadership ends. Drops all state."""
        self._term = self._rr = None
        self._lm = self._strict_latest = self._strict_released = 0
        self._registry.clear()
        self._waiting.clear()
        self._finished.clear()

    @property
    def leads(self) -> bool:
        return self._term is not None

    @property
    def term(self) -> int:
        if self._term is None:
            raise NotLeading("this node does not lead; ask the leader")
        return self._term

    @property
    def lm(self) -> int:
        return self._lm

    @property
    def strict_latest(self) -> int:
        """The latest strict revision: what a grant requires."""
        return self._strict_latest

    @property
    def rr(self) -> int | None:
        """RR; None until this leader knows it."""
        return self._rr

    @property
    def strict_released(self) -> int:
        """The latest released strict revision, which is sent to the holders. RR itself also moves over eventual
        revisions, which are not staged, and a holder that receives an RR beyond its staged revisions fences itself."""
        return self._strict_released

    @property
    def registry(self) -> Registry:
        return self._registry

    def visible(self, revision: int) -> bool:
        """Whether this revision may be shown, because no strict revision up to it waits."""
        return self._rr is not None and revision <= self._rr

    # Messages of holders

    def renew(self, holder: HolderId, renew: Renew, now: float, *, quorum_lease: bool) -> GrantMessage | NotGranted:
        """`quorum_lease`: whether this leader holds it now. The grant is recorded here, so the caller may send it late
        or not at all."""
        if self._term is None:
            return NotGranted.NOT_LEADING
        held = self._registry.find(holder)
        if held is None:
            return NotGranted.NOT_REGISTERED
        if not held.record_heartbeat(holder.incarnation, now):
            return NotGranted.OLD_INCARNATION
        held.reported_state = renew.state
        held.acknowledge(min(renew.staged, self._lm))
        if not renew.asks or not held.registration.fences:
            return NotGranted.NOT_ASKED
        if held.leaving:
            return NotGranted.LEAVING
        if not held.registration.covers(renew):
            return NotGranted.OTHER_TIMES
        if not quorum_lease:
            return NotGranted.NO_QUORUM_LEASE
        held.grant(renew.t0, now, self._strict_latest)
        return GrantMessage(self._term, holder.incarnation, renew.t0, self._strict_latest)

    def hello(self, hello: Hello, now: float) -> HolderStanding:
        """A holder connects. It gets grants only if it is REGISTERED."""
        if self._term is None:
            return HolderStanding.NOT_LEADING
        standing = self._registry.standing(hello)
        held = self._registry.find(hello.holder)
        if held is not None:
            if not held.record_heartbeat(hello.holder.incarnation, now):
                return HolderStanding.OLD_INCARNATION
            held.reported_state = hello.state
        return standing

    def staged(self, holder: HolderId, upto: int, now: float) -> None:
        """The holder has staged every strict event up to `upto`."""
        held = self._registry.find(holder)
        if held is not None and held.record_heartbeat(holder.incarnation, now):
            held.acknowledge(min(upto, self._lm))

    def fenced(self, holder: HolderId, fenced: FencedMessage, now: float) -> bool:
        """The holder serves nothing and has voided its leases. False: this message does not prove that."""
        held = self._registry.find(holder)
        if held is None or fenced.term != self._term or not held.record_heartbeat(holder.incarnation, now):
            return False
        return held.promise(fenced, now)

    # Commits and releases

    def committed(self, latest: int, now: float, strict: tuple[int, int] | None) -> None:
        """Everything up to `latest` is committed. `strict`: the first and the last strict revision since the last call.

        Call it before these revisions are sent to any holder, client or reader. Raises NotLeading, InvariantBroken.
        """
        if self._term is None:
            raise NotLeading("this node does not lead; ask the leader")
        if latest <= self._lm:
            raise InvariantBroken(f"commit of revision {latest} after that of {self._lm}")
        if strict is not None:
            first, last = strict
            if not self._lm < first <= last <= latest:
                raise InvariantBroken(f"strict revisions {strict} outside ({self._lm}, {latest}]")
            self._waiting.append(ReleaseBatch(first, last, now))
            self._strict_latest = last
        self._lm = latest
        self._skip_eventual()

    def moves(self, now: float) -> bool:
        """Whether `advance` would release anything."""
        return bool(self._waiting) and not self._registry.blocks(self._goal(), now, self._strict_latest)

    def advance(self, now: float) -> int | None:
        """Release what is safe. Returns the new RR, or None if it has not moved. Call it once per turn, not per
        message. It is cheap while RR still waits for the same holder as at the last call."""
        if not self.moves(now):
            return None
        safe_up_to = self._registry.safe_up_to(now, self._strict_latest)
        before = self._rr
        while self._waiting and self._waiting[0].last <= safe_up_to:
            self._finish(self._waiting.popleft(), now)
        if self._waiting and self._rr is not None and self._waiting[0].first <= safe_up_to:
            self._waiting[0].first = safe_up_to + 1
            self._rr = self._strict_released = safe_up_to
        self._skip_eventual()
        return self._rr if self._rr != before else None

    def _goal(self) -> int:
        """The revision that has to be safe for RR to move. A new leader learns RR in one step."""
        batch = self._waiting[0]
        return batch.last if self._rr is None else batch.first

    def _finish(self, batch: ReleaseBatch, now: float) -> None:
        self._rr = self._strict_released = batch.last
        by_fence = self._registry.least_staged() < batch.last
        self._finished.append(ReleasedState(batch.first, batch.last, now - batch.at, by_fence))

    def _skip_eventual(self) -> None:
        """Move RR over eventual revisions, which never wait."""
        if self._rr is not None:
            self._rr = max(self._rr, self._waiting[0].first - 1 if self._waiting else self._lm)

    def next_time(self, now: float) -> float | None:
        """When `advance` is due without further messages; None: never. Valid until the next change."""
        if not self._waiting:
            return None
        return self._registry.safe_at(self._goal(), now, self._strict_latest)

    # Status

    def verdict(self, now: float, revision: int | None = None) -> Verdict | None:
        """The verdict on `revision`, by default the one that RR waits for. None: none waits, or it is beyond LM."""
        if revision is None:
            if not self._waiting:
                return None
            revision = self._goal()
        if revision > self._lm:
            return None
        batch = next((each for each in self._waiting if revision <= each.last), None)
        if batch is None or (self._rr is not None and revision < batch.first):
            return Verdict(revision, VerdictOutcome.PROCEED, None, ())
        return self._verdict(revision, now, batch.at)

    def _verdict(self, revision: int, now: float, committed_at: float) -> Verdict:
        judged = (judge(held.facts(revision), revision, now) for held in self._registry)
        return overall(judged, revision, now, committed_at + self._timing.proceed_s())

    @property
    def waiting(self) -> int:
        """Number of waiting batches."""
        return len(self._waiting)

    def waits(self, now: float, most: int = 20) -> tuple[ReleaseWait, ...]:
        """The oldest waiting batches, at most `most`."""
        oldest = (self._waiting[number] for number in range(min(most, len(self._waiting))))
        return tuple(ReleaseWait(b.first, b.last, b.at, self._verdict(b.last, now, b.at)) for b in oldest)

    def take_released(self) -> tuple[ReleasedState, ...]:
        """The batches released since the last call, at most the latest FINISHED_MAX. For metrics."""
        finished = tuple(self._finished)
        self._finished.clear()
        return finished
