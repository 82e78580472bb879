"""Whatever is applied at an index is the same everywhere (Raft 5.4.3)."""

from __future__ import annotations

from collections.abc import Sequence

from tests.sim.node import Host
from tests.sim.world import Checker, World


class StateMachineSafety(Checker):
    name = "state machine safety"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._committed: dict[int, tuple[int, tuple[bytes, ...]]] = {}

    def applied(self, host: Host, index: int, term: int, commands: Sequence[bytes]) -> None:
        ours = term, tuple(commands)
        known = self._committed.setdefault(index, ours)
        if known != ours:
            self.fail(f"{host.id} applies {ours} at index {index}, another node applied {known}")
