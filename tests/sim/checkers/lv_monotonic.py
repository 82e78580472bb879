"""LV of a vault and RR of its page only grow, and are never ahead of what the cluster has applied (R1, F2).

LV over all starts of the node, until power or disk are lost; RR within one start.
"""

from __future__ import annotations

from tests.sim.checkers.growing import Growing
from tests.sim.node import Host
from tests.sim.world import World


class LvMonotonic(Growing):
    name = "LV monotonic"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._looked: dict[str, tuple[object, ...]] = {}

    def turned(self, host: Host) -> None:
        if host.foreign is not None:
            return
        vault = host.vault
        found = (host.node, vault, None if vault is None else (vault.position, vault.staging.released))
        if self._looked.get(host.id) != found:
            self._looked[host.id] = found
            self._look(host)

    def _look(self, host: Host) -> None:
        vault, holder = host.vault, host.part.holder
        if vault is None or holder is None or holder.vault is not vault:
            return
        released, revision = vault.staging.released, vault.revision
        self.grows(f"LV of {host.id}", host.disk.vault_id, revision)
        self.grows(f"RR of {host.id}", vault, released)
        if released > self.world.revision or revision > self.world.revision:
            self.fail(f"the vault of {host.id} is at {revision}, RR {released}, and no node has applied that")
