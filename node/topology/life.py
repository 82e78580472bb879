"""One node's way into the logical topology and back into it, step by step. Pure (seed 001, R9).

    SEEKING     no node of the cluster has answered yet
    JOINING     asks to be let in, again and again, until it is or is refused for good
    RECOVERING  validated; goes from its vault to the cluster's state
    FINISHING   has recovered, and says so
    ACTIVE      in the logical topology; looks whether it still is
    REJECTED    stops, and `reason` says why

Whatever takes the node out of the topology meanwhile (it was paused, a link was cut) leads back to JOINING, with a new
attempt and so a new incarnation; only what no repetition can mend leads to REJECTED.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from node.topology.errors import Reason
from node.topology.records import NodeRecord, Standing
from node.topology.verdicts import Reject

MENDABLE = frozenset({Reason.SUPERSEDED, Reason.NOT_VALIDATED})
"""To join again, as a newer incarnation, is all that it takes."""


class Phase(enum.Enum):
    SEEKING = "seeking"
    JOINING = "joining"
    RECOVERING = "recovering"
    FINISHING = "finishing"
    ACTIVE = "active"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Life:
    """`attempt` numbers the join requests of this process. `waiting`: what there is to wait for, by the last answer."""

    phase: Phase = Phase.SEEKING
    attempt: int = 1
    incarnation: int = 0
    recovered: int = 0
    waiting: str = ""
    reason: str = ""

    def found(self) -> Life:
        """A node of the cluster has answered."""
        return replace(self, phase=Phase.JOINING, waiting="")

    def told_to_wait(self, text: str) -> Life:
        return replace(self, waiting=text)

    def validated(self, record: NodeRecord) -> Life:
        """An answer of before that says ACTIVE means the same: what was recovered then is checked once more."""
        return replace(self, phase=Phase.RECOVERING, incarnation=record.incarnation, waiting="")

    def has_recovered(self, revision: int) -> Life:
        return replace(self, phase=Phase.FINISHING, recovered=revision)

    def is_active(self) -> Life:
        return replace(self, phase=Phase.ACTIVE, waiting="")

    def refused(self, verdict: Reject) -> Life:
        if verdict.reason in MENDABLE:
            return replace(self, phase=Phase.JOINING, attempt=self.attempt + 1, waiting=verdict.text)
        return replace(self, phase=Phase.REJECTED, reason=verdict.text)

    def saw(self, record: NodeRecord | None, instance: str) -> Life:
        """What the cluster says of this node now; None where it knows nothing of it."""
        if self.phase is not Phase.ACTIVE:
            return self
        same = record is not None and record.instance == instance and record.incarnation == self.incarnation
        if record is not None and same and record.standing is Standing.ACTIVE:
            return self
        why = record.reason if record is not None and same else "the cluster has another record of it, or none"
        return replace(self, phase=Phase.JOINING, attempt=self.attempt + 1, waiting=f"dropped: {why}; joining again")
