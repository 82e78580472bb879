"""State machine of one node joining, and rejoining, the logical topology. Pure (seed 001, R9).

    SEEKING     no node of the cluster has answered yet
    JOINING     sends join requests until one is validated or permanently rejected
    RECOVERING  validated; recovers from its vault to the cluster's state
    FINISHING   recovered; reports this to the cluster
    ACTIVE      in the logical topology; checks periodically that it still is
    REJECTED    stops; `reason` gives the cause

A node that is dropped (it was paused, a link was cut) goes back to JOINING, with a new attempt and so a new
incarnation. Only an error that a retry cannot fix leads to REJECTED.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from palisade.topology.admission_rules import RejectJoin
from palisade.topology.records import NodeRecord, NodeStanding
from palisade.wire.topology_errors import Reason

RESOLVED_BY_REJOIN = frozenset({Reason.SUPERSEDED, Reason.NOT_VALIDATED})
"""Joining again, as a new incarnation, resolves these."""


class JoinPhase(enum.Enum):
    SEEKING = "seeking"
    JOINING = "joining"
    RECOVERING = "recovering"
    FINISHING = "finishing"
    ACTIVE = "active"
    REJECTED = "rejected"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class JoinState:
    """`attempt` numbers the join requests of this process. `recovered`: LV after recovery. `waiting`: what the node
    waits for, by the last answer."""

    phase: JoinPhase = JoinPhase.SEEKING
    attempt: int = 1
    incarnation: int = 0
    recovered: int = 0
    waiting: str = ""
    reason: str = ""

    def found(self) -> JoinState:
        """A node of the cluster has answered."""
        return replace(self, phase=JoinPhase.JOINING, waiting="")

    def wait_for(self, text: str) -> JoinState:
        return replace(self, waiting=text)

    def validated(self, record: NodeRecord) -> JoinState:
        """A repeated answer with standing ACTIVE counts the same: the node verifies its state by recovering again."""
        return replace(self, phase=JoinPhase.RECOVERING, incarnation=record.incarnation, waiting="")

    def has_recovered(self, revision: int) -> JoinState:
        return replace(self, phase=JoinPhase.FINISHING, recovered=revision)

    def is_active(self) -> JoinState:
        return replace(self, phase=JoinPhase.ACTIVE, waiting="")

    def refused(self, verdict: RejectJoin) -> JoinState:
        if verdict.reason in RESOLVED_BY_REJOIN:
            return replace(self, phase=JoinPhase.JOINING, attempt=self.attempt + 1, waiting=verdict.text)
        return replace(self, phase=JoinPhase.REJECTED, reason=verdict.text)

    def saw(self, record: NodeRecord | None, instance: str) -> JoinState:
        """`record`: the cluster's current record of this node; None if it has none."""
        if self.phase is not JoinPhase.ACTIVE:
            return self
        same = record is not None and record.instance == instance and record.incarnation == self.incarnation
        if record is not None and same and record.standing is NodeStanding.ACTIVE:
            return self
        cause = record.reason if record is not None and same else "the cluster's record names another process or none"
        return replace(
            self, phase=JoinPhase.JOINING, attempt=self.attempt + 1, waiting=f"dropped: {cause}; joining again"
        )
