"""The verdict on one strict revision: may it be shown, or may somebody still show what it replaced? (F4, F6) Pure.

For a holder it is ACKED if it said that it has staged the revision. It is FENCED_SAFE if it can't serve without having
staged it: it was granted no lease, or promised its leases away, or they have run out. What counts are leases granted
*before* the revision was committed; all later ones require it. So each wait ends by T_proceed after the commit (F5).
A holder that does not know leases is never judged fenced: only its own word counts.

Overall: PROCEED if nobody is PENDING. FAIL says that nothing but an answer of a holder without leases will help, and
that there was none for T_proceed; the change stays committed and pending all the same (F8). Else WAIT.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass


class Judgement(enum.StrEnum):
    ACKED = "acked"
    FENCED_SAFE = "fenced_safe"
    PENDING = "pending"


class Outcome(enum.StrEnum):
    PROCEED = "proceed"
    WAIT = "wait"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a holder. `granted_at`: when it was last granted a lease before the revision was committed, by
    the leader's clock; None: no such lease can be alive. `promised`: because it said so."""

    node: str
    fences: bool
    staged: int
    granted_at: float | None
    promised: bool
    proceed_s: float


@dataclass(frozen=True, slots=True)
class Judged:
    """`until`: when a PENDING holder is safe without a word of its own; None: never."""

    node: str
    judgement: Judgement
    until: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """`until`: when it is PROCEED at the latest, if nothing else happens; None: not by time."""

    revision: int
    outcome: Outcome
    until: float | None
    judged: tuple[Judged, ...]

    @property
    def waits_for(self) -> tuple[Judged, ...]:
        return tuple(each for each in self.judged if each.judgement is Judgement.PENDING)

    @property
    def reasons(self) -> tuple[str, ...]:
        """For people: each names the holder, and until when it is waited for."""
        return tuple(each.reason for each in self.waits_for)


def judge(facts: Facts, revision: int, now: float) -> Judged:
    """One holder."""
    node = facts.node
    if facts.staged >= revision:
        return Judged(node, Judgement.ACKED, None, f"{node} has staged revision {revision}")
    if not facts.fences:
        why = f"{node} does not know leases and has not acknowledged revision {revision}: upgrade it, or take it out"
        return Judged(node, Judgement.PENDING, None, why)
    if facts.granted_at is None:
        why = "has promised not to serve" if facts.promised else "holds no lease of before the change"
        return Judged(node, Judgement.FENCED_SAFE, None, f"{node} {why}")
    until = facts.granted_at + facts.proceed_s
    if now >= until:
        return Judged(node, Judgement.FENCED_SAFE, None, f"{node} has not answered, and its lease has run out")
    why = f"{node} has not acknowledged revision {revision}, and may serve for another {until - now:.1f} s"
    return Judged(node, Judgement.PENDING, until, why)


def overall(judged: Iterable[Judged], revision: int, now: float, overdue_at: float) -> Verdict:
    """All holders together. `overdue_at`: from when on silence of one that does not know leases is a failure."""
    each = tuple(judged)
    pending = [one for one in each if one.judgement is Judgement.PENDING]
    if not pending:
        return Verdict(revision, Outcome.PROCEED, None, each)
    ends = [one.until for one in pending if one.until is not None]
    if len(ends) == len(pending):
        return Verdict(revision, Outcome.WAIT, max(ends), each)
    return Verdict(revision, Outcome.FAIL if now >= overdue_at else Outcome.WAIT, None, each)
