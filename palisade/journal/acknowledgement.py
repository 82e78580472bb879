"""Decides which entries the active copy may acknowledge. Pure.

There are two limits: every copy that may take over must have synced the entry, and no other copy may be active yet.
The time of the second limit is counted from before the keep-alive of the role's lease was sent, and shortened by the
drift of clocks: the store's clock may be fast and this one slow. Thus it ends before the lease, even if the response
was late.
"""

from __future__ import annotations

from palisade.catalog.activation import ReplicaEvent, ReplicaState, acknowledgement_needs, after

DRIFT = 0.01
"""rho: the maximum relative error of a clock."""
LAG_MAX = 4096
"""Maximum lag of a replica, in entries, when acknowledgements begin to wait for it."""


def reserve_s(ttl_s: float, drift: float = DRIFT) -> float:
    """A copy stops this long before the end of its lease, by its own clock."""
    return ttl_s * (1 - (1 - drift) / (1 + drift))


class Acknowledgement:
    """`synced`, `replica_synced`: the last entry on the disk of each copy. `acknowledged` never decreases."""

    __slots__ = ("acknowledged", "adopted", "appended", "replica", "replica_synced", "synced")

    def __init__(self, end: int) -> None:
        """`end`: the last entry of the activated copy; none of its entries can be lost any more."""
        self.appended = self.synced = self.acknowledged = end
        self.replica = ReplicaState.NONE
        self.replica_synced = 0
        self.adopted = False

    def happens(self, event: ReplicaEvent) -> None:
        """Raises NotAllowed."""
        self.replica = after(self.replica, event)
        if event in (ReplicaEvent.ATTACHED, ReplicaEvent.DETACHED):
            self.replica_synced, self.adopted = 0, False

    @property
    def may_join(self) -> bool:
        """Whether the lag of the replica is so small that entries can wait for it."""
        return self.replica is ReplicaState.CATCHING_UP and self.replica_synced >= self.appended - LAG_MAX

    def advance(self, *, in_time: bool) -> int:
        """The last entry that is acknowledged now. `in_time`: no other copy can be active."""
        needs = acknowledgement_needs(self.replica)
        if in_time and needs is not None:
            safe = min(self.synced, self.replica_synced) if "replica" in needs else self.synced
            self.acknowledged = max(self.acknowledged, safe)
        return self.acknowledged
