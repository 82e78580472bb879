"""At most one leader in a term (Raft 5.2)."""

from __future__ import annotations

from tests.sim.node import Host
from tests.sim.world import Checker, World


class ElectionSafety(Checker):
    name = "election safety"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._leaders: dict[int, str] = {}

    def turned(self, host: Host) -> None:
        if host.group is None or host.failed:
            return
        engine = host.group._replica.engine
        if engine.leads:
            leader = self._leaders.setdefault(engine.term, host.id)
            if leader != host.id:
                self.fail(f"{leader} and {host.id} both lead term {engine.term}")
