"""A cluster that has compacted past a node: the node needs a snapshot, evictions and fetches (case c)."""

from __future__ import annotations

from palisade.metastore.requests import DeleteRange, Put
from palisade.vault.memory_tables import MemoryBackend
from tests.support.recovery_world import Node, Shelf, Steps, founded
from tests.support.vault_feed import compact, full


class Ground:
    """A cluster that has compacted past a node, and the node's disks as it left them."""

    def __init__(self) -> None:
        self.cluster = founded(full((b"/k/%03d" % n, b"%d" % n) for n in range(60)))
        for name, version in (("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")):
            self.cluster.do(Put(b"/assigned/" + name.encode(), version.encode()))
        self.disk, self.shelf = MemoryBackend(), Shelf()

    async def prepare(self) -> Ground:
        await Node(self.cluster, self.disk, self.shelf).recover()
        do = self.cluster.do
        for number in range(0, 60, 4):
            do(Put(b"/k/%03d" % number, b"new"))
        do(DeleteRange(b"/k/021", b"/k/024"))
        do(Put(b"/assigned/b", b"2"))
        do(DeleteRange(b"/assigned/c"))
        do(Put(b"/assigned/e", b"1"))
        self.go_on()
        return self

    def go_on(self, revisions: int = 1) -> None:
        """The cluster moves on while the node is down: the pinned history is compacted. A node that was at LM can
        replay one revision, and needs another snapshot for more."""
        self.cluster.wait(3_600_001)
        for _ in range(revisions):
            self.cluster.do(Put(b"/later/%d" % self.cluster.store.revision, b""))
        compact(self.cluster, self.cluster.store.revision)

    def node(self, steps: Steps | None = None) -> Node:
        return Node(self.cluster, self.disk, self.shelf, steps=steps)
