"""Clients of a bare Raft group that read and write continuously."""

from __future__ import annotations

import asyncio

from palisade.raftgroup.errors import RaftError
from tests.support.raft_cluster import Cluster, Node

KEYS = ("a", "b")


class Clients:
    """Some on each node; they restart with their node. `pause_s`: the longest time between two operations."""

    def __init__(self, cluster: Cluster, *, each: int = 2, pause_s: float = 0.15) -> None:
        self._cluster = cluster
        self._each = each
        self._pause_s = pause_s
        self._busy: set[object] = set()
        self.going = True
        self._hire()

    def _hire(self) -> None:
        """Every running node has its clients."""
        if not self.going:
            return
        for node in self._cluster.nodes.values():
            if node.runs and node.group is not None and node.process not in self._busy:
                self._busy.add(node.process)
                for _ in range(self._each):
                    node.process.start(self._work(node))
        self._cluster.simulation.after(0.05, self._hire)

    async def _work(self, node: Node) -> None:
        random, checkers = self._cluster.random, self._cluster.checkers
        group = node.group
        while self.going and node.group is group and not node.failed:
            await asyncio.sleep(self._pause_s * random.random() ** 2)
            key, timeout_s = KEYS[int(random.random() * len(KEYS))], 0.2 + 2.0 * random.random()
            try:
                if random.random() < 0.5:
                    await checkers.write(node, key, "v", timeout_s)
                else:
                    await checkers.read(node, key, timeout_s)
            except RaftError:
                continue
