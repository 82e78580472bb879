"""A node that holds segments: its holder and its recovery on simulated disks that outlive its starts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from palisade.catalog.segment import SegmentRecord
from palisade.metastore.requests import DeleteRange, Put
from palisade.recovery.follower import Follower
from palisade.recovery.lifecycle import Lifecycle, Part
from palisade.recovery.listeners import Listeners
from palisade.recovery.recovery import Settings, World
from palisade.recovery.vault_component import ComponentPort
from palisade.segments.holder import SegmentHolder
from palisade.segments.holder_ports import Announcements, NoRetention, Unannounced
from palisade.segments.names import assignment_key
from palisade.segments.segment_store import SegmentStore, file_of
from palisade.segments.verification import version_of
from palisade.vault.memory_tables import MemoryBackend
from palisade.vault.vault import Vault
from tests.support.meta_driver import Driver
from tests.support.recovery_world import Node, Shelf, Steps, founded
from tests.support.segment_names import name, segment
from tests.support.segment_world import Files, SimulatedDisk, Stock
from tests.support.vault_feed import compact, full


def day(number: int) -> str:
    return name(number)


def rows(number: int, wave: int = 1) -> bytes:
    return b"flights of day %d, wave %d\x1e" % (number, wave) * 3


class Expired(NoRetention):
    """The segments of these names have expired."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def is_expired(self, name: str, vault: Vault) -> bool:
        return name in self.names


class Ground:
    """A cluster, and the disks of a node over its starts."""

    def __init__(self) -> None:
        self.cluster: Driver = founded(full([(b"/k", b"v")]))
        self.vault_disk, self.files, self.stock = MemoryBackend(), Files(), Stock()
        self.wanted: dict[str, bytes] = {}
        self.announcements: Announcements = Unannounced()
        self.expired = Expired()

    def assign(self, *numbers: int, wave: int = 1) -> None:
        for number in numbers:
            self.wanted[day(number)] = content = rows(number, wave)
            value = self.stock.has(day(number), content).to_value()
            self.cluster.do(Put(assignment_key("n1", day(number)), value))

    def unassign(self, *numbers: int) -> None:
        for number in numbers:
            del self.wanted[day(number)]
            self.cluster.do(DeleteRange(assignment_key("n1", day(number))))

    def record(self, number: int, change: Callable[[SegmentRecord], SegmentRecord] = lambda found: found) -> None:
        found = SegmentRecord(segment(number), 1, 3, len(rows(number)), version_of(rows(number)).digest, 1)
        self.cluster.do(Put(found.segment.key, change(found).to_bytes()))

    def compact(self) -> None:
        self.cluster.do(Put(b"/later", b"%d" % self.cluster.store.revision))
        compact(self.cluster, self.cluster.store.revision)

    @property
    def expected(self) -> dict[str, bytes]:
        return {file_of(found): content for found, content in self.wanted.items()}

    def node(self, steps: Steps | None = None) -> HoldingNode:
        return HoldingNode(self, steps or Steps())

    @asynccontextmanager
    async def started(self) -> AsyncIterator[HoldingNode]:
        node = self.node()
        await node.recover()
        try:
            yield node
        finally:
            await node.inner.stop()


class HoldingNode(Node):
    """One start of a node whose resources are the real ones, on a simulated disk."""

    def __init__(self, ground: Ground, steps: Steps) -> None:
        super().__init__(ground.cluster, ground.vault_disk, Shelf())
        listeners = Listeners()
        segment_store = SegmentStore(SimulatedDisk(ground.files, steps))
        self.holder = SegmentHolder(
            "n1", segment_store, ground.stock, listeners, ground.announcements, ground.expired
        ).on(self.vault)
        self.inner = Lifecycle([Part("segments", self.holder)], listeners)
        self.port = ComponentPort(self.inner, lambda: self.vault)
        world = World(self.vault, self.source, self.port, self.holder, self.clock, self.difference)
        self.follower = Follower(world, Settings("n1"))

    async def step(self) -> None:
        await self.follower.step()


class Refusing(Unannounced):
    """Refuses this number of withdrawals."""

    def __init__(self, times: int = 1_000) -> None:
        self.left = times

    async def withdraw(self, name: str, vault: Vault, *, even_if_needed: bool) -> bool:
        self.left = max(0, self.left - 1)
        return not self.left
