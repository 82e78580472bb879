"""The verdict on one strict revision: whether any holder may still serve the value that it replaced (F4, F6). Pure.

A holder is ACKED if it has acknowledged the revision. It is FENCED_SAFE if it cannot serve without the revision: it was
granted no lease, has promised not to use it, or its leases have expired. Only leases granted *before* the commit of the
revision count, because all later ones require it. Thus each wait ends by T_proceed after the commit (F5). A holder that
does not support leases is never judged fenced; it has to acknowledge.

Overall: PROCEED if no holder is PENDING. FAIL if a holder without leases has to acknowledge, and T_proceed has passed;
the change stays committed and pending even then (F8). Otherwise WAIT.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from palisade.fencing.former_leases import former_leases, is_former


class Judgement(enum.StrEnum):
    ACKED = "acked"
    FENCED_SAFE = "fenced_safe"
    PENDING = "pending"


class VerdictOutcome(enum.StrEnum):
    PROCEED = "proceed"
    WAIT = "wait"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Facts:
    """What the leader knows of a holder. `granted_at`: time of the last grant before the commit, by the leader's clock;
    None: no such lease can be alive. `promised`: the holder has sent a promise."""

    node: str
    fences: bool
    staged: int
    granted_at: float | None
    promised: bool
    proceed_s: float


@dataclass(frozen=True, slots=True)
class Judged:
    """`until`: when a PENDING holder becomes safe by time alone; None: never."""

    node: str
    judgement: Judgement
    until: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """`until`: when the outcome becomes PROCEED by time alone; None: never."""

    revision: int
    outcome: VerdictOutcome
    until: float | None
    judged: tuple[Judged, ...]

    @property
    def waits_for(self) -> tuple[Judged, ...]:
        return tuple(each for each in self.judged if each.judgement is Judgement.PENDING)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Each names a holder and how long it is waited for. For display."""
        return tuple(each.reason for each in self.waits_for)


def judge(facts: Facts, revision: int, now: float) -> Judged:
    """The judgement on one holder."""
    node = facts.node
    if facts.staged >= revision:
        return Judged(node, Judgement.ACKED, None, f"{node} has staged revision {revision}")
    if not facts.fences:
        reason = (
            f"{node} does not support leases and has not acknowledged revision {revision}: upgrade it, or remove it"
        )
        return Judged(node, Judgement.PENDING, None, reason)
    if facts.granted_at is None:
        reason = "has promised not to serve" if facts.promised else "holds no lease from before the change"
        return Judged(node, Judgement.FENCED_SAFE, None, f"{node} {reason}")
    until = facts.granted_at + facts.proceed_s
    if now >= until:
        return Judged(node, Judgement.FENCED_SAFE, None, f"{node} has not answered, and its lease has expired")
    left = f"for another {until - now:.1f} s"
    if is_former(node):
        return Judged(node, Judgement.PENDING, until, f"{former_leases(node)} may be in use {left}")
    reason = f"{node} has not acknowledged revision {revision}, and may serve {left}"
    return Judged(node, Judgement.PENDING, until, reason)


def overall(judged: Iterable[Judged], revision: int, now: float, overdue_at: float) -> Verdict:
    """The verdict on all holders. `overdue_at`: from then on, a missing acknowledgement of a holder without leases is a
    failure."""
    each = tuple(judged)
    pending = [one for one in each if one.judgement is Judgement.PENDING]
    if not pending:
        return Verdict(revision, VerdictOutcome.PROCEED, None, each)
    ends = [one.until for one in pending if one.until is not None]
    if len(ends) == len(pending):
        return Verdict(revision, VerdictOutcome.WAIT, max(ends), each)
    return Verdict(revision, VerdictOutcome.FAIL if now >= overdue_at else VerdictOutcome.WAIT, None, each)
