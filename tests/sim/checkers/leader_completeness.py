"""Whoever leads has every entry that was committed in the terms before (Raft 5.4)."""

from __future__ import annotations

from collections.abc import Sequence

from tests.sim.node import Host
from tests.sim.world import Checker, World


class LeaderCompleteness(Checker):
    name = "leader completeness"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._committed: dict[int, int] = {}
        self._led: set[tuple[str, int]] = set()

    def applied(self, host: Host, index: int, term: int, commands: Sequence[bytes]) -> None:
        self._committed.setdefault(index, term)

    def turned(self, host: Host) -> None:
        if host.group is None or host.failed:
            return
        engine = host.group._replica.engine
        if not engine.leads or (host.id, engine.term) in self._led:
            return
        self._led.add((host.id, engine.term))
        journal = host.disk.journal
        for index, term in self._committed.items():
            if index > journal.first.index and term < engine.term and journal.term_at(index) != term:
                self.fail(f"{host.id} leads term {engine.term} without the committed entry {index} of term {term}")
