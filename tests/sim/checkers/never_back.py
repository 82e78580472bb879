"""What only grows: LV of a vault, MM, the revision that a store has applied, what a fence page releases.

LV over all starts of the node, until power or disk are lost; the rest within one start, since what was not flushed is
applied anew.
"""

from __future__ import annotations

from tests.sim.node import Host
from tests.sim.world import Checker, World

Place = tuple[str, str, object]


class NeverBack(Checker):
    name = "never back"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.seen: dict[Place, int] = {}
        self._looked: dict[str, tuple[object, ...]] = {}

    def turned(self, host: Host) -> None:
        if host.foreign is not None:
            return
        vault, state = host.vault, None if host.store is None else host.store._state
        told = (
            host.node,
            vault,
            None if vault is None else vault.position,
            None if vault is None else vault.staging.released,
            None if state is None else (state.revision, state.compacted),
        )
        if self._looked.get(host.id) != told:
            self._looked[host.id] = told
            self._look(host)

    def _look(self, host: Host) -> None:
        vault, node, holder = host.vault, host.node, host.part.holder
        if vault is not None and holder is not None and holder.vault is vault:
            released, revision = vault.staging.released, vault.revision
            self._grows((host.id, "LV", host.disk.vault_id), revision)
            self._grows((host.id, "RR", vault), released)
            if released > self.world.revision or revision > self.world.revision:
                self.fail(f"the vault of {host.id} is at {revision}, RR {released}, and nobody has applied that")
        if not host.follows:
            state = node.store._state
            self._grows((host.id, "revision", node), state.revision)
            self._grows((host.id, "MM", node), state.compacted)

    def _grows(self, place: Place, value: int) -> None:
        before = self.seen.get(place)
        if before is None or value > before:
            self.seen[place] = value
        elif value < before:
            self.fail(f"{place[1]} of {place[0]} went back from {before} to {value}")
