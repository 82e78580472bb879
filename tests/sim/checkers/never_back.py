"""What only grows: LV of a vault, MM, the revision and the index that a store has applied, what a fence page releases.

Within one disk, over all starts of the node; what was applied may go back to what was flushed when the node dies.
"""

from __future__ import annotations

from tests.sim.node import Host
from tests.sim.world import Checker, World


class NeverBack(Checker):
    name = "never back"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.seen: dict[tuple[str, str, str], int] = {}
        self.minimal = 0

    def turned(self, host: Host) -> None:
        vault, disk = host.vault, host.disk
        holder = host.part.holder if host.part is not None else None
        if vault is not None and holder is not None and holder.vault is vault:
            self._grows(host, f"LV of vault {disk.vault_id}", vault.revision)
            self._grows(host, f"RR of vault {disk.vault_id} in start {host.starts}", vault.staging.released)
            if vault.staging.released > self.world.revision or vault.revision > self.world.revision:
                self.fail(f"the vault of {host.id} is at {vault.revision}, and nobody has applied that")
        store = host.store
        if store is not None:
            self._grows(host, f"revision in start {host.starts}", store.revision)
            self._grows(host, f"MM in start {host.starts}", store.minimal_revision)

    def _grows(self, host: Host, what: str, value: int) -> None:
        place = (host.id, what, "")
        before = self.seen.get(place, 0)
        if value < before:
            self.fail(f"{what} of {host.id} went back from {before} to {value}")
        self.seen[place] = value
