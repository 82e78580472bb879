"""The holder's lease: until when it may serve, by its own clock.

A lease runs from t0, the holder's own time at which it asked. The leader grants after it was asked, so whatever the
network delays, loses, repeats or reorders, the lease ends no later than T_fence behind the grant, which is what the
leader counts from (`grants.py`). Counted from the receipt of a grant it could end at any time.

A grant is taken only by who has staged what it requires: all that its leader knew to be committed. So no grant
prolongs a cache that lacks a change which was committed before the grant was issued.

What the holder promised away (`void`) stays away: no grant that it asked for before is taken any more.
"""

from __future__ import annotations

import enum
import math

from palisade.fencing.messages import Grant

NEVER = -math.inf
KEPT_MAX = 8


class GrantVerdict(enum.Enum):
    """What became of a grant, and why it was refused."""

    ACCEPTED = "the lease runs from it"
    KEPT = "it requires more than is staged yet: it is taken when that is staged"
    STALE_TERM = "of an older term than one that was seen"
    OTHER_INCARNATION = "another process of this node asked for it"
    NEVER_ASKED = "nobody asked for it"
    PROMISED_AWAY = "asked for before a promise not to take it"
    RUN_OUT = "too late: it has run out"
    STOPPED = "the node is stopping"


class Lease:
    """At most one lease, `length_s` long. `now`: nothing asked for up to then is taken; another process may have."""

    __slots__ = ("_asked", "_incarnation", "_kept", "_length_s", "_not_before", "_t0", "_term")

    def __init__(self, length_s: float, incarnation: int, now: float, term: int) -> None:
        self._length_s = length_s
        self._incarnation = incarnation
        self._term = term
        self._not_before = now
        self._asked = NEVER
        self._t0 = NEVER
        self._kept: tuple[Grant, ...] = ()

    @property
    def term(self) -> int:
        """The highest that was seen."""
        return self._term

    @property
    def t0(self) -> float:
        """What the lease runs from."""
        return self._t0

    @property
    def deadline(self) -> float:
        return self._t0 + self._length_s

    def holds(self, now: float) -> bool:
        return now < self.deadline

    def see_term(self, term: int) -> bool:
        """False: an older one than was seen, so its leader leads no more."""
        if term < self._term:
            return False
        self._term = term
        return True

    def ask(self, now: float) -> float:
        """t0 for a request that leaves now."""
        self._asked = max(self._asked, now)
        return now

    def void(self, now: float) -> float:
        """Nothing that was asked for up to now is taken any more; returns what to promise."""
        self._not_before = max(self._not_before, self._asked, now)
        self._t0 = NEVER
        self._kept = ()
        return self._not_before

    def offer(self, grant: Grant, now: float, staged: int) -> GrantVerdict:
        """A grant has arrived."""
        verdict = self._judge(grant, now, staged)
        if verdict is GrantVerdict.ACCEPTED:
            self._t0 = max(self._t0, grant.t0)
        elif verdict is GrantVerdict.KEPT and grant not in self._kept:
            self._kept = (*self._kept[-KEPT_MAX + 1 :], grant)
        return verdict

    def staged(self, now: float, staged: int) -> None:
        """More is staged: what was kept for that is judged again, as if it arrived now."""
        kept, self._kept = self._kept, ()
        for grant in kept:
            self.offer(grant, now, staged)

    def _judge(self, grant: Grant, now: float, staged: int) -> GrantVerdict:
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
