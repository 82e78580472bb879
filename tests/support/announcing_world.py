"""Data nodes that move copies of segments, and brokers that follow their announcements, by a random schedule.

Every write to the cluster is one revision. Nodes and brokers receive revisions in order, each at its own pace. A write
is answered once every broker has received it, as in a strict region. Times are those of the store's leases.

Checked at each removal of a copy that queries may count on: no broker returns that node, and each returns another one.
Checked always: a broker returns no node for a copy that was not complete when it was announced.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterable
from typing import Any

from palisade.catalog.segment import ANNOUNCED, ROOT, SegmentRecord
from palisade.metastore.errors import MetastoreError
from palisade.metastore.requests import (
    Compare,
    DeleteRange,
    LeaseExpire,
    LeaseGrant,
    LeaseKeepAlive,
    Put,
    Range,
    RequestId,
    Txn,
    prefix_end,
)
from palisade.metastore.results import TxnResult
from palisade.raftgroup.errors import OutcomeUnknown
from palisade.recovery.listeners import Notification
from palisade.segments.announcer import Announcer
from palisade.segments.holder import SegmentHolder
from palisade.segments.leased_announcements import LeasedAnnouncements
from palisade.segments.names import assignment_key
from palisade.segments.segment_store import SegmentStore, file_of
from palisade.segments.settled_writes import SettledWrites
from palisade.segments.verification import version_of
from palisade.vault.change import Item, VaultEvent
from tests.support.meta_driver import Driver
from tests.support.segment_names import segment
from tests.support.segment_world import Files, SimulatedDisk, Stock

NODES = ("a", "b", "c")
BROKERS = ("x", "y")
DAYS = (1, 2, 3)
TTL_MS = 10_000


class Violation(AssertionError):
    pass


class Replica:
    """The rows below palisade/segments/ as of `revision`: the part of a vault that data nodes use."""

    def __init__(self) -> None:
        self.items: dict[bytes, Item] = {}
        self.revision = 0

    def apply(self, revision: int, events: Iterable[VaultEvent]) -> None:
        for event in events:
            if event.item is None:
                self.items.pop(event.key, None)
            else:
                self.items[event.key] = event.item
        self.revision = revision

    def get(self, key: bytes) -> Item | None:
        return self.items.get(key)

    def range(self, start: bytes, end: bytes) -> Iterable[Item]:
        return iter([self.items[key] for key in sorted(self.items) if start <= key < end])

    def nodes_of(self, name: str) -> set[str]:
        ending = b"/" + name.encode()
        found = (key for key in self.items if key.startswith(ANNOUNCED) and key.endswith(ending))
        return {key.removeprefix(ANNOUNCED).partition(b"/")[0].decode() for key in found}


class OneListener:
    """In place of `recovery.listeners.Listeners`."""

    def __init__(self) -> None:
        self.all: list[Callable[[Notification], Any]] = []

    def listen(self, component: str, listener: Callable[[Notification], Any], *, below: bytes | None = None) -> None:
        self.all.append(listener)


class SlowDisk(SimulatedDisk):
    """Other tasks get turns within each write and before each removal, which is checked."""

    def __init__(self, world: AnnouncingWorld, node: str, files: Files) -> None:
        super().__init__(files)
        self._world, self._node = world, node

    async def write(self, file: str, content: bytes) -> None:
        await self._world.some_turns()
        await super().write(file, content)
        await self._world.some_turns()

    async def remove(self, file: str) -> None:
        self._world.check_removal(self._node, file)
        await super().remove(file)


class WorldStore:
    """An `announcements.AnnouncementStore`."""

    def __init__(self, world: AnnouncingWorld, node: str) -> None:
        self._world, self._node = world, node
        self._writes = SettledWrites(node, self._send)

    async def lease(self, lease: int, ttl_ms: int) -> int:
        await self._world.some_turns()
        result = self._world.cluster.do(LeaseKeepAlive(lease) if lease else LeaseGrant(ttl_ms))
        return int(result.id)

    async def announce(self, compare: Iterable[Compare], writes: Iterable[Put | DeleteRange]) -> TxnResult:
        return await self._writes.write(Txn(tuple(compare), tuple(writes)))

    async def _send(self, request: Txn, request_id: RequestId) -> TxnResult:
        """An attempt that is delayed at a cut-off node is repeated at another one, or its deadline passes."""
        world = self._world
        await world.some_turns()
        if world.rng.random() < world.delayed_share:
            world.delayed.append((request, request_id))
            if world.rng.random() < 0.3:
                raise OutcomeUnknown("the deadline passed")
        result, revision = world.write(request, request_id)
        if "answered_at_commit" not in world.fault:
            await world.released(revision)
        if world.loses_reply():
            raise OutcomeUnknown("the reply was lost")
        return result

    async def close(self) -> None: ...


class DataNode:
    def __init__(self, world: AnnouncingWorld, name: str) -> None:
        self.name, self.world = name, world
        self.files, self.replica, self.listeners = Files(), Replica(), OneListener()
        segment_store = SegmentStore(SlowDisk(world, name, self.files))
        self.own = LeasedAnnouncements(name, WorldStore(world, name))
        self.holder = SegmentHolder(name, segment_store, world.stock, self.listeners, self.own)  # type: ignore[arg-type]
        self.holder.on(self.replica)  # type: ignore[arg-type]
        self.announcer = Announcer(self.holder, self.own, self.listeners)  # type: ignore[arg-type]

    async def start(self) -> None:
        await self.holder.start()
        await self.announcer.start()

    def receive(self, revision: int, events: list[VaultEvent]) -> None:
        self.replica.apply(revision, events)
        for listener in self.listeners.all:
            listener(Notification(revision, events))

    async def work(self, kind: str) -> None:
        if kind == "settle":
            await self.holder._settle()
        elif kind == "announce":
            await self.announcer.announce()
        else:
            await self.own.renew()


class AnnouncingWorld:
    def __init__(self, seed: int, fault: str = "") -> None:
        self.rng, self.fault = random.Random(seed), fault
        self.cluster, self.stock = Driver(), Stock()
        self.log: list[tuple[int, list[VaultEvent]]] = []
        self._before: dict[bytes, Item] = {}
        self.brokers = {name: Replica() for name in BROKERS}
        self.nodes = {name: DataNode(self, name) for name in NODES}
        self.moves = self.removals = 0
        self.lost_share, self.lost_next = 0.0, 0
        """Replies to writes of announcements: the share that is lost, and how many of the next ones are."""
        self.delayed_share = 0.0
        self.delayed: list[tuple[Txn, RequestId]] = []
        """Attempts at a cut-off node, which may arrive at any time, or never."""
        self.disk_trouble = False
        """Whether disks become full or read-only, and heal."""
        for day in DAYS:
            content = b"flights of day %d" % day
            wanted = self.stock.has(str(segment(day)), content)
            self.write(Txn((), (Put(segment(day).key, record(day, wanted.digest).to_bytes()),)))
            self.assign(day, {"a"})

    # The cluster.

    def write(self, request: Txn, request_id: RequestId | None = None) -> tuple[TxnResult, int]:
        result = self.cluster.do(request, request_id)
        self.note()
        return result, self.cluster.store.revision

    def note(self) -> None:
        """The changes since the last revision go to nodes and brokers."""
        revision = self.cluster.store.revision
        now = {
            kv.key: Item(kv.key, kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease)
            for kv in self.cluster.store.range(Range(ROOT, prefix_end(ROOT))).kvs
        }
        events = [
            VaultEvent(key, item.mod_revision, item) for key, item in now.items() if self._before.get(key) != item
        ]
        events += [VaultEvent(key, revision, None) for key in sorted(self._before.keys() - now.keys())]
        if events:
            self.log.append((revision, events))
        self._before = now

    def loses_reply(self) -> bool:
        if self.lost_next:
            self.lost_next -= 1
            return True
        return bool(self.lost_share) and self.rng.random() < self.lost_share

    def deliver_delayed(self) -> None:
        request, request_id = self.delayed.pop(self.rng.randrange(len(self.delayed)))
        with contextlib.suppress(MetastoreError):  # the lease of that time may have ended
            self.write(request, request_id)

    def assign(self, day: int, nodes: set[str]) -> None:
        name, wanted = str(segment(day)), version_of(self.stock.content[str(segment(day))])
        held = {node for node in NODES if assignment_key(node, name) in self._before}
        puts = [Put(assignment_key(node, name), wanted.to_value()) for node in sorted(nodes - held)]
        deletes = [DeleteRange(assignment_key(node, name)) for node in sorted(held - nodes)]
        if puts or deletes:
            self.moves += 1
            self.write(Txn((), (*puts, *deletes)))

    def expire(self, node: str) -> None:
        """The node could not renew its lease in time."""
        lease = self.nodes[node].own.lease
        if lease:
            self.cluster.wait(2 * TTL_MS)
            try:
                self.cluster.do(LeaseExpire((lease,)))
            except MetastoreError:
                raise AssertionError("the lease must expire") from None
            self.note()

    async def released(self, revision: int) -> None:
        while any(broker.revision < revision for broker in self.brokers.values()):
            await self.some_turns()

    async def some_turns(self) -> None:
        for _ in range(self.rng.randrange(1, 4)):
            await asyncio.sleep(0)

    def deliver(self, to: Callable[[int, list[VaultEvent]], None], revision: int) -> None:
        """The next revision after this one."""
        following = next(((number, events) for number, events in self.log if number > revision), None)
        if following is not None:
            to(*following)

    # The checks.

    def is_whole(self, node: str, name: str) -> bool:
        return self.nodes[node].files.content.get(file_of(name)) == self.stock.content[name]

    def check_removal(self, node: str, file: str) -> None:
        name = file.replace("@", "/")
        if name not in self.stock.content:
            return
        self.removals += 1
        for broker, replica in self.brokers.items():
            found = replica.nodes_of(name)
            if node in found:
                raise Violation(f"{node} removes {name}, for which broker {broker} returns it")
            if not self.expired and not found:
                raise Violation(f"{node} removes {name}, for which broker {broker} has no other node")

    def check_announced(self) -> None:
        for item in self._before.values():
            if item.key.startswith(ANNOUNCED):
                node, _, name = item.key.removeprefix(ANNOUNCED).decode().partition("/")
                if not self.is_whole(node, name):
                    raise Violation(f"{node} announces {name} without a complete copy")

    # The schedule.

    expired = False

    async def run(self, steps: int = 250, *, with_expiry: bool = False) -> None:
        self.expired = with_expiry
        for node in self.nodes.values():
            await node.start()
        tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
        try:
            for _ in range(steps):
                self.step(tasks)
                await self.some_turns()
                self.check_announced()
                for task in tasks.values():
                    if task.done():
                        task.result()
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    def heal_disks(self) -> None:
        for node in self.nodes.values():
            node.files.room_bytes, node.files.read_only = None, False

    def step(self, tasks: dict[tuple[str, str], asyncio.Task[None]]) -> None:
        node = self.nodes[self.rng.choice(NODES)]
        if self.disk_trouble and self.rng.random() < 0.1:
            node.files.room_bytes = self.rng.choice((None, None, 0, 20))
            node.files.read_only = self.rng.random() < 0.3
        if self.delayed and self.rng.random() < 0.02:
            self.deliver_delayed()
        kind = self.rng.random()
        if kind < 0.25:
            self.deliver(node.receive, node.replica.revision)
        elif kind < 0.5:
            broker = self.brokers[self.rng.choice(BROKERS)]
            self.deliver(broker.apply, broker.revision)
        elif kind < 0.96:
            work = self.rng.choice(("settle", "announce", "renew"))
            busy = tasks.get((node.name, work))
            if busy is None or busy.done():
                tasks[node.name, work] = asyncio.create_task(node.work(work))
        elif kind < 0.985 or not self.expired:
            day = self.rng.choice(DAYS)
            self.assign(day, set(self.rng.sample(NODES, self.rng.choice((1, 1, 2)))))
        else:
            self.expire(node.name)

    async def calm(self) -> None:
        """Everything is delivered and every node works until nothing changes any more."""
        for _ in range(30):
            for node in self.nodes.values():
                await self.finished(node.own.renew())
                await self.finished(node.holder._settle())
                await self.finished(node.announcer.announce())
            self.deliver_all()

    async def finished(self, work: Any) -> Any:
        task = asyncio.ensure_future(work)
        while not task.done():
            self.deliver_all()
            await asyncio.sleep(0)
        return task.result()

    def deliver_all(self) -> None:
        for _ in range(len(self.log)):
            for node in self.nodes.values():
                self.deliver(node.receive, node.replica.revision)
            for broker in self.brokers.values():
                self.deliver(broker.apply, broker.revision)


def record(day: int, digest: str) -> SegmentRecord:
    return SegmentRecord(segment(day), 1, 1, 10, digest, 1, loaded=True)


async def planted(
    fault: str = "", *, with_expiry: bool = False, disk_trouble: bool = False, delayed_share: float = 0.0
) -> bool:
    """Whether a check fails in one of many schedules."""
    for seed in range(200):
        world = AnnouncingWorld(seed, fault)
        world.disk_trouble, world.delayed_share = disk_trouble, delayed_share
        try:
            await world.run(with_expiry=with_expiry)
        except Violation:
            return True
        except ExceptionGroup as group:
            return group.subgroup(Violation) is not None
    return False
