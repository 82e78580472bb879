"""The holder's lease: until when it may serve, by its own clock.

A lease runs from t0, the holder's own time of the request. The leader grants after the request. Thus however the
network delays, loses, repeats or reorders messages, the lease ends at most T_fence after the grant, from which the
leader counts (`registry.py`). If it ran from the receipt of the grant, it could end at any time.

A holder accepts a grant only when it has staged what the grant requires: all strict revisions that the leader knew to
be committed. Thus no grant extends a cache that lacks a change committed before the grant was issued.

A promise (`void`) is final: no grant requested before it is accepted any more.
"""

from __future__ import annotations

import enum
import math

from palisade.fencing.messages import GrantMessage

NEVER = -math.inf
KEPT_MAX = 8


class GrantVerdict(enum.Enum):
    """Result of a grant."""

    ACCEPTED = "accepted"
    KEPT = "kept until the revisions that it requires are staged"
    STALE_TERM = "rejected: older term"
    OTHER_INCARNATION = "rejected: requested by another process of this node"
    NEVER_ASKED = "rejected: not requested"
    PROMISED_AWAY = "rejected: requested before a promise"
    RUN_OUT = "rejected: already expired"
    STOPPED = "rejected: the node is stopping"


class FenceLease:
    """At most one lease of `length_s`. `now`: grants requested up to then are rejected, because another process may
    have requested them."""

    __slots__ = ("_asked", "_incarnation", "_length_s", "_not_before", "_t0", "_term", "kept")

    def __init__(self, length_s: float, incarnation: int, now: float, term: int) -> None:
        self._length_s = length_s
        self._incarnation = incarnation
        self._term = term
        self._not_before = now
        self._asked = NEVER
        self._t0 = NEVER
        self.kept: tuple[GrantMessage, ...] = ()
        """Grants that wait until more is staged: then call `staged`."""

    @property
    def term(self) -> int:
        """The highest term seen."""
        return self._term

    @property
    def t0(self) -> float:
        """Start of the lease."""
        return self._t0

    @property
    def deadline(self) -> float:
        return self._t0 + self._length_s

    def holds(self, now: float) -> bool:
        return now < self.deadline

    def see_term(self, term: int) -> bool:
        """False for an older term than one seen before, whose leader has been replaced."""
        if term < self._term:
            return False
        self._term = term
        return True

    def ask(self, now: float) -> float:
        """t0 for a request that is sent now."""
        self._asked = max(self._asked, now)
        return now

    def void(self, now: float) -> float:
        """Give up the lease and reject every grant requested up to now. Returns the time for the promise."""
        self._not_before = max(self._not_before, self._asked, now)
        self._t0 = NEVER
        self.kept = ()
        return self._not_before

    def offer(self, grant: GrantMessage, now: float, staged: int) -> GrantVerdict:
        """Process a grant that has arrived."""
        verdict = self._judge(grant, now, staged)
        if verdict is GrantVerdict.ACCEPTED:
            self._t0 = max(self._t0, grant.t0)
        elif verdict is GrantVerdict.KEPT and grant not in self.kept:
            self.kept = (*self.kept[-KEPT_MAX + 1 :], grant)
        return verdict

    def staged(self, now: float, staged: int) -> None:
        """Process the kept grants again, because more is staged."""
        kept, self.kept = self.kept, ()
        for grant in kept:
            self.offer(grant, now, staged)

    def _judge(self, grant: GrantMessage, now: float, staged: int) -> GrantVerdict:
        if grant.incarnation != self._incarnation:
            return GrantVerdict.OTHER_INCARNATION
        if not self.see_term(grant.term):
            return GrantVerdict.STALE_TERM
        if grant.t0 > self._asked:
            return GrantVerdict.NEVER_ASKED
        if grant.t0 <= self._not_before:
            return GrantVerdict.PROMISED_AWAY
        if now >= grant.t0 + self._length_s:
            return GrantVerdict.RUN_OUT
        return GrantVerdict.KEPT if staged < grant.required else GrantVerdict.ACCEPTED
