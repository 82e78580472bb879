"""Data nodes that receive rows, and the client that counts them, in `realtime_world.py`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from palisade.base.errors import PalisadeError
from palisade.catalog.timeline import Interval
from palisade.client.segment_query import CountFailed
from palisade.metastore.requests import Compare, Range, Txn, prefix_end
from palisade.metastore.results import RangeResult, TxnResult
from palisade.segments.announcer import Announcer
from palisade.segments.broker import ViewFeed
from palisade.segments.broker_view import OnMissing
from palisade.segments.holder import SegmentHolder
from palisade.segments.leased_announcements import LeasedAnnouncements
from palisade.segments.names import Wanted
from palisade.segments.realtime import RealtimeIngester
from palisade.segments.realtime_handoff import RealtimeHandOff
from palisade.segments.realtime_held import HeldSegments
from palisade.segments.segment_store import SegmentStore
from palisade.segments.segment_views import answer_view, state_view
from palisade.segments.settled_writes import SettledWrites
from palisade.segments.sources import SourceFailed
from palisade.wire.segment_errors import NoSuchDataSource
from tests.support.announcing_world import (
    NODES,
    TTL_MS,
    DataNode,
    OneListener,
    Replica,
    SlowDisk,
    Violation,
    WorldStore,
)
from tests.support.realtime_disk import LogDisk, LogFolder

if TYPE_CHECKING:
    from tests.support.realtime_world import RealtimeWorld

DAY = Interval(0, 86_400_000)


class PeerSource:
    """The copy of another node."""

    def __init__(self, world: RealtimeWorld, name: str) -> None:
        self._world, self.name = world, name

    async def get(self, name: str, wanted: Wanted) -> bytes:
        await self._world.some_turns()
        node = self._world.nodes[self.name]
        if self.name in self._world.down:
            raise SourceFailed("is down")
        try:
            return (await node.holder.read(name, wanted.digest))[0]
        except PalisadeError as error:
            raise SourceFailed(str(error)) from error


class Peers:
    def __init__(self, world: RealtimeWorld, node: str) -> None:
        self._world, self._node = world, node

    def sources(self, name: str, wanted: Wanted, vault: Any) -> Iterable[PeerSource]:
        return [PeerSource(self._world, each) for each in NODES if each != self._node]


class CheckedAnnouncements(LeasedAnnouncements):
    def __init__(self, world: RealtimeWorld, name: str, store: WorldStore) -> None:
        super().__init__(name, store, TTL_MS / 1000, world.now)
        self._world = world

    def is_announced(self, name: str) -> bool:
        """The ingester asks directly before it acknowledges."""
        found = super().is_announced(name)
        record = self._world.stored(name)
        if found and record is not None and not record.replicas:
            raise Violation(f"{self.node} acknowledges rows of {name}, which was given up")
        return found


class IngestingNode(DataNode):
    """`replica`: what its vault had when it stopped."""

    def __init__(self, world: RealtimeWorld, name: str, before: IngestingNode | None = None) -> None:
        super().__init__(world, name)
        self.dead = False
        self.logs = LogDisk() if before is None else before.logs
        if before is not None:
            self.files, self.replica = before.files, before.replica
        self.listeners = OneListener()
        segment_store = SegmentStore(SlowDisk(world, name, self.files))
        store = WorldStore(world, name)
        world.processes += 1
        store._writes = SettledWrites(f"{name}-{world.processes}", store._send)
        self.own = CheckedAnnouncements(world, name, store)
        self.holder = SegmentHolder(name, segment_store, Peers(world, name), self.listeners, self.own)  # type: ignore[arg-type]
        self.holder.on(self.replica)  # type: ignore[arg-type]
        folder = LogFolder(world, self, self.logs)
        logs = HeldSegments(folder, world.now)
        self.ingester = RealtimeIngester(self.holder, self.own, logs, self.listeners, world.pause)  # type: ignore[arg-type]
        self.announcer = Announcer(self.holder, self.own, self.listeners, self.ingester.growing)  # type: ignore[arg-type]
        self.hand_off = RealtimeHandOff(self.ingester, world.in_thread)

    async def start(self) -> None:
        await self.holder.start()
        await self.ingester.start()
        await self.announcer.start()

    async def work(self, kind: str) -> None:
        if kind == "hand off":
            await self.hand_off.work()
        else:
            await super().work(kind)

    def rows(self, name: str) -> int:
        """As `GET /v1/segments/<segment>/rows`. Raises NodeFailed."""
        if (held := self.ingester.served(name)) is not None:
            return held.log.rows
        record = self.holder.record(name)
        rows = None if record is None else self.holder.segment_store.verifier.rows(record.digest)
        if record is None or rows is None or not self.holder.segment_store.has(name, record.digest):
            raise CountFailed(self.name, f"it does not have {name}")
        return rows


class BrokerClient:
    """The part of `palisade.Client` that a count uses, over one broker's rows. Also a `PublishingStore`."""

    def __init__(self, world: RealtimeWorld, broker: Replica) -> None:
        self._world, self._broker = world, broker

    def _view(self) -> Any:
        feed = ViewFeed()
        for _ in feed.rows(self._broker.items.values(), max(1, self._broker.revision)):
            pass
        return feed.view

    async def segments_list(self, data_source: str) -> dict[str, Any]:
        found = [state_view(each) for each in self._view().states(data_source)]
        return {"count": len(found), "segments": found}

    async def segments_lookup(self, data_source: str, start: str, end: str, *, on_missing: str) -> dict[str, Any]:
        await self._world.some_turns()
        try:
            found = self._view().lookup(data_source, DAY, OnMissing.ALLOW)
        except NoSuchDataSource:
            return {"segments": [], "missing": [], "unserved": [], "revision": 0}
        return answer_view(data_source, found, OnMissing.ALLOW)

    async def range(self, key: bytes, *, prefix: bool = False, revision: int = 0) -> RangeResult:
        return self._world.cluster.store.range(Range(key, prefix_end(key) if prefix else b"", revision=revision))

    async def segments_txn(self, compare: Iterable[Compare] = (), success: Iterable[Any] = ()) -> TxnResult:
        result, revision = self._world.write(Txn(tuple(compare), tuple(success)))
        await self._world.released(revision)
        return result
