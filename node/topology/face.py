"""Everything that a node knows of the topology and does for it, for the APIs: one value, whatever the node's role."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from node.swim.udp import SwimSocket
from node.topology.life import Phase
from node.topology.member import TopologyMember
from node.topology.physical import PhysicalTopology
from node.topology.registrar import ClusterState, Registrar
from node.topology.view import physical_view
from recovery.report import rounded


async def nothing_to_refresh() -> None:
    """A member has the records itself."""


@dataclass(frozen=True, slots=True)
class Topology:
    """`logical`: what this node has of the logical topology, as rows, and its version. `registrar`: None on a node that
    is no member of the Raft group, and so can't decide anything. Such a node has a copy of the logical topology:
    `refresh` it before it is shown; `age_s` is how old it is, None where it has never had one."""

    physical: PhysicalTopology
    registrar: Registrar | None
    member: TopologyMember
    logical: Callable[[], tuple[list[dict[str, Any]], int]]
    refresh: Callable[[], Awaitable[None]] = nothing_to_refresh
    age_s: Callable[[], float | None] = float

    @property
    def socket(self) -> SwimSocket:
        return self.physical.socket

    @property
    def is_active(self) -> bool:
        """Whether this node is in the logical topology, as far as it knows."""
        return self.member.life.phase is Phase.ACTIVE

    def view(self) -> dict[str, Any]:
        """As this node sees it: shape `Topology` of the API."""
        rows, version = self.logical()
        return {
            "self": self.own_view(),
            "physical": physical_view(self.physical.records()),
            "logical": rows,
            "version": version,
            "logical_age_s": rounded(self.age_s()),
            "strangers": dict(sorted(self.socket.strangers.items())),
        }

    def own_view(self) -> dict[str, Any]:
        """How far this node is on its way into the logical topology."""
        life = self.member.life
        return {
            "phase": life.phase.value,
            "incarnation": life.incarnation,
            "waiting_for": life.waiting or None,
        }


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
