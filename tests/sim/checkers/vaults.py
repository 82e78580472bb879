"""A vault is the cluster's state as of LV: with the chain digest of the stores at that revision, and, whenever it is
opened and at the end, with every key as it was committed by then, and no other (R1, R7, M7).

The sums that it stores do not suffice: they are kept beside the rows, and may be right where a row is not.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from palisade.base.digest import DIGEST_BYTES
from palisade.metastore.results import KeyValue, RevisionEvents
from palisade.vault.vault import Vault
from tests.sim.backups import Base
from tests.sim.node import Host
from tests.sim.world import Checker, World


class Vaults(Checker):
    name = "vaults"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.chains: dict[int, bytes] = {}
        self._seen: dict[str, tuple[object, int]] = {}
        self._versions: dict[bytes, tuple[list[int], list[KeyValue | None]]] = {}
        """Of each key: the revision of each change, and the value from then on."""

    def applied(self, host: Host, index: int, term: int, commands: Sequence[bytes]) -> None:
        state = host.store._state
        self.chains.setdefault(state.revision, state.chain.to_bytes(DIGEST_BYTES, "big"))

    def committed(self, events: RevisionEvents) -> None:
        for event in events.events:
            revisions, versions = self._versions.setdefault(event.kv.key, ([], []))
            revisions.append(events.revision)
            versions.append(None if event.delete else event.kv)

    def restored(self, base: Base) -> None:
        for events in base.past:
            self.committed(events)

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

    def opened(self, host: Host, vault: Vault) -> None:
        self._compare(host, vault, "is opened")

    def settled(self) -> None:
        for host in self.world.hosts.values():
            if host.vault is not None:
                self._compare(host, host.vault, "ends")

    def _compare(self, host: Host, vault: Vault, what: str) -> None:
        lineage = vault.lineage
        of_before = lineage is not None and lineage.generation != self.world.generation
        if host.foreign is not None or of_before or vault.recovering is not None:
            return
        found = {item.key: KeyValue(*item) for item in vault.range(b"")}
        expected = {key: kv for key in self._versions if (kv := self._at(key, vault.revision)) is not None}
        for key in sorted({*found, *expected}):
            if found.get(key) != expected.get(key):
                self.fail(
                    f"the vault of {host.id} {what} at LV {vault.revision} with {found.get(key)} of {key!r}, and "
                    f"{expected.get(key)} was committed"
                )

    def _at(self, key: bytes, revision: int) -> KeyValue | None:
        revisions, versions = self._versions[key]
        place = bisect_right(revisions, revision)
        return versions[place - 1] if place else None
