"""All replicas have the same state at the same index of the log: revision, chain digest, number of keys (M7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.sim.node import Host
from tests.sim.world import Checker, World


class Equality(Checker):
    name = "state machine equality"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.known: dict[int, tuple[Any, ...]] = {}

    def applied(self, host: Host, index: int, term: int, commands: Sequence[bytes]) -> None:
        state = host.store._state
        ours = (state.revision, state.chain, state.keys, state.size, state.minimal_revision)
        if self.known.setdefault(index, ours) != ours:
            self.fail(f"{host.id} is at {ours} behind entry {index}, another node was at {self.known[index]}")

    def settled(self) -> None:
        """Whole digests, with every bucket, and the vaults'."""
        digests = {host.id: host.store.digest() for host in self.world.members}
        first = next(iter(digests.values()))
        for name, digest in digests.items():
            if digest != first:
                self.fail(f"{name} has another digest than the others at revision {digest.revision}")
        for host in self.world.hosts.values():
            vault = host.vault
            if vault is not None and vault.revision == first.revision and vault.packed_sums() != first.buckets:
                self.fail(f"the vault of {host.id} has other digests than the stores at revision {first.revision}")
