"""The rules of Raft on the groups of the simulation: those of `tests/support/raft_checkers.py`, which names sources."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from tests.sim.node import Host
from tests.sim.world import Checker, World
from tests.support.raft_checkers import Checkers


class _Rules(Checkers):
    """Told of a world instead of a cluster of registers."""

    def __init__(self, checker: Raft) -> None:
        cluster: Any = SimpleNamespace(simulation=checker.world.simulation, nodes=checker.world.hosts)
        super().__init__(cluster)
        self._checker = checker

    def _fail(self, text: str) -> None:
        self._checker.fail(text)


class Raft(Checker):
    """Election safety, leader completeness, log matching, state machine safety, nothing said before it is on disk."""

    name = "raft"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.rules = _Rules(self)
        self._disks = {host.id: host.disk for host in world.hosts.values()}
        world.network.overhear = self.rules.said

    def turned(self, host: Host) -> None:
        group = host.group
        if group is None or group.failed is None or group.failed.done():
            return
        if self._disks[host.id] is not host.disk:
            self._disks[host.id] = host.disk
            self.rules.forget(host.id)
        node: Any = host
        self.rules.turned(node)

    def applied(self, host: Host, index: int, term: int, commands: Sequence[bytes]) -> None:
        known = self.rules.committed.setdefault(index, (term, tuple(commands)))
        if known != (term, tuple(commands)):
            self.fail(f"{host.id} applies {term, commands} at index {index}, another node applied {known}")

    def ended(self) -> None:
        members: list[Any] = self.world.members
        for number, one in enumerate(members):
            for other in members[number + 1 :]:
                self.rules._check_pair(one, other)
