"""A vault is the cluster's state as of LV: with the chain digest that the stores had at that revision (R1, R7)."""

from __future__ import annotations

from collections.abc import Sequence

from metastore.digest import DIGEST_BYTES
from tests.sim.node import Host
from tests.sim.world import Checker, World


class Vaults(Checker):
    name = "vaults"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.chains: dict[int, bytes] = {}
        self._seen: dict[str, tuple[object, int]] = {}

    def applied(self, host: Host, index: int, term: int, commands: Sequence[bytes]) -> None:
        state = host.store._state
        self.chains.setdefault(state.revision, state.chain.to_bytes(DIGEST_BYTES, "big"))

    def turned(self, host: Host) -> None:
        vault = host.vault
        if vault is None or host.foreign is not None or self._seen.get(host.id) == (vault.backend, vault.revision):
            return
        self._seen[host.id] = vault.backend, vault.revision
        expected = self.chains.get(vault.revision)
        if expected is not None and vault.chain not in (expected, host.disk.wrong_chain):
            self.fail(
                f"the vault of {host.id} has the chain digest {vault.chain.hex()} at LV {vault.revision}, "
                f"the stores had {expected.hex()}"
            )
