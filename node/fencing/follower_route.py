"""How a node that is no member of the group finds the leader: every reachable member knows it."""

from __future__ import annotations

from collections.abc import Sequence

from palisade.topology.physical import PhysicalTopology
from palisade.topology.records import NodeRole


class FollowerRoute:
    def __init__(self, physical: PhysicalTopology) -> None:
        self._physical = physical

    def leads_here(self) -> bool:
        return False

    def leader(self) -> str | None:
        """The members know it."""
        return None

    def candidates(self) -> Sequence[str]:
        live = [each for each in self._physical.records() if each.is_live and each.tag("role") == NodeRole.VOTER.value]
        return sorted(address for each in live if (address := each.tag("stream")))
