"""The topology as the APIs use it: one value with the same interface for members and followers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from palisade.recovery.report import rounded
from palisade.topology.join_state import JoinPhase
from palisade.topology.member import TopologyMember
from palisade.topology.physical import PhysicalTopology
from palisade.topology.registrar import ClusterState, Registrar
from palisade.topology.swim.udp import SwimSocket
from palisade.topology.view import physical_view

REMEDY = "an empty data directory and --join, to join again"


async def nothing_to_refresh() -> None:
    """For a member, which stores the records itself."""


@dataclass(frozen=True, slots=True)
class Topology:
    """`logical`: this node's rows of the logical topology, and their version. `registrar`: None on a follower, which
    decides nothing. A follower has a copy of the logical topology: call `refresh` before showing it. `age_s`: age of
    the copy; None before the first one. `removed`: whether this node was removed from the cluster. It does not
    receive that change of the logical topology, so it omits itself."""

    physical: PhysicalTopology
    registrar: Registrar | None
    member: TopologyMember
    logical: Callable[[], tuple[list[dict[str, Any]], int]]
    refresh: Callable[[], Awaitable[None]] = nothing_to_refresh
    age_s: Callable[[], float | None] = float
    removed: Callable[[], bool] = bool

    @property
    def socket(self) -> SwimSocket:
        return self.physical.socket

    @property
    def is_active(self) -> bool:
        """Whether this node is in the logical topology, by its last answer from the cluster."""
        return self.member.life.phase is JoinPhase.ACTIVE and not self.removed()

    def view(self) -> dict[str, Any]:
        """This node's view: shape `Topology` of the API."""
        rows, version = self.logical()
        if self.removed():
            rows = [row for row in rows if row["id"] != self.member.name]
        return {
            "self": self.own_view(),
            "physical": physical_view(self.physical.records()),
            "logical": rows,
            "version": version,
            "logical_age_s": rounded(self.age_s()),
            "strangers": dict(sorted(self.socket.strangers.items())),
        }

    def own_view(self) -> dict[str, Any]:
        """This node's own join state."""
        life = self.member.life
        phase, waiting = (JoinPhase.REMOVED, REMEDY) if self.removed() else (life.phase, life.waiting)
        return {"phase": phase.value, "incarnation": life.incarnation, "waiting_for": waiting or None}


def cluster_view(state: ClusterState) -> dict[str, Any]:
    """The cluster state message: shape `Cluster` of the API."""
    return {
        "cluster": state.cluster,
        "cluster_id": state.cluster_id,
        "generation": state.generation,
        "protocol": state.protocol,
        "initialized": state.initialized,
        "token_needed": state.token_needed,
        "revision": state.revision,
        "minimal_revision": state.minimal_revision,
        "leader": state.leader,
    }
