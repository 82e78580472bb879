"""The entry applied at an index is the same everywhere (Raft 5.4.3)."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.onlooker import Member, Onlooker, View


class StateMachineSafety(Onlooker):
    name = "state machine safety"

    def __init__(self, world: View) -> None:
        super().__init__(world)
        self.entries: dict[int, tuple[int, tuple[bytes, ...]]] = {}

    def applied(self, host: Member, index: int, term: int, commands: Sequence[bytes]) -> None:
        ours = term, tuple(commands)
        known = self.entries.setdefault(index, ours)
        if known != ours:
            self.fail(f"{host.id} applies {ours} at index {index}, another node applied {known}")
