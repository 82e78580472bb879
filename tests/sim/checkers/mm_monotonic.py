"""MM of a store only grows, and so does its revision, within one start: what was not flushed is applied anew (M6)."""

from __future__ import annotations

from tests.sim.checkers.growing import Growing
from tests.sim.node import Host
from tests.sim.world import World


class MmMonotonic(Growing):
    name = "MM monotonic"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._looked: dict[str, tuple[object, int, int]] = {}

    def turned(self, host: Host) -> None:
        if host.follows or host.store is None:
            return
        state = host.store._state
        told = host.node, state.revision, state.compacted
        if self._looked.get(host.id) != told:
            self._looked[host.id] = told
            self.grows(f"the revision of {host.id}", (host.node, "revision"), state.revision)
            self.grows(f"MM of {host.id}", (host.node, "MM"), state.compacted)
