"""A follower without an eviction plan keeps only complete data beside its vault (R5)."""

from __future__ import annotations

from tests.sim.node import Host
from tests.sim.world import Checker


class LocalDataComplete(Checker):
    name = "local data"

    def turned(self, host: Host) -> None:
        vault = host.vault
        if not host.follows or vault is None or host.foreign is not None or vault.recovering is not None:
            return
        half = [name for name, held in host.disk.shelf.held.items() if not held.whole]
        if half and vault.plan() is None:
            self.fail(f"{host.id} keeps incomplete data of {', '.join(half)} at LV {vault.revision}")
