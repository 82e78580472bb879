"""A client of segments: publishes, announces and drops copies, opens realtime segments and hands them off, changes
records, and looks up at every node (issue 17).

The nodes' own coordinator marks as loaded what is announced. Only the scenario `segments` has this client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from palisade.api.segment_service import OwnSegmentStore
from palisade.base.errors import PalisadeError
from palisade.catalog.realtime import grows, opening, published
from palisade.catalog.segment import Segment, SegmentRecord
from palisade.catalog.timeline import Interval, SegmentId
from palisade.client.beside_growing import chunk_prefix, unchanged_chunk
from palisade.client.publishing import publish, read_data_source, replace_intervals, unchanged, unchanged_record
from palisade.client.record_choice import named
from palisade.client.segment_changes import mark_unused, reset_loaded, set_replicas
from palisade.metastore.requests import Compare, CompareResult, CompareTarget, DeleteRange, Put, Txn
from palisade.segments.broker_view import OnMissing, SegmentAnswer
from palisade.service.callers import THIS_NODE
from palisade.service.key_values import KeyValues
from palisade.wire.segment_errors import NoSuchDataSource
from tests.sim.checkers.segment_lookups import SegmentLookups
from tests.sim.clients import TIMEOUT_S, Client
from tests.sim.node import Host
from tests.sim.outcomes import EXPECTED
from tests.support.segment_writer import ALWAYS, DAY_MS, DAYS, NODES, SOURCE

KNOWN_MAX = 6
"""Older segments that are still announced and changed."""
LOOKUPS = 4
"""After each change."""


class Segmenter:
    def __init__(self, client: Client, going: Callable[[], bool]) -> None:
        self._client, self._going = client, going
        self._world = client.world
        self._digests = 0
        self._known: list[Segment] = []

    async def run(self) -> None:
        while self._going():
            await self._ask(self._world.chance.choice(self._world.members), self._change)
            for _ in range(LOOKUPS):
                host = self._world.chance.choice([*self._world.hosts.values()])
                await self._ask(host, lambda node, at=host: self._look_up(at, node))  # type: ignore[misc]
                await asyncio.sleep(0.02 * self._world.chance.random())

    async def _ask(self, host: Host, work: Callable[[Any], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._world.ask(self._client.process, self._client.name, host.http, work)
        except (*EXPECTED, PalisadeError, ConnectionError, TimeoutError):
            self._world.count("segments: refused")

    async def _change(self, node: Any) -> None:
        chance, store = self._world.chance, OwnSegmentStore(node.key_values)
        lot = chance.random()
        if lot < 0.05 and self._known:
            await self._open(store, node.key_values)
            return
        if lot < 0.15 or not self._known:
            await self._publish(store)
            return
        chosen = chance.choice(self._known)
        if chance.random() < 0.3 and await self._hand_off(store, chosen):
            return
        if lot < 0.8:
            key = chosen.announcement_key(chance.choice(NODES))
            request = Put(key) if chance.random() < 0.6 else DeleteRange(key)
            await node.key_values.write(request, caller=THIS_NODE)
        elif lot < 0.9:
            await set_replicas(store, SOURCE, chance.randrange(2), named([chosen]))
        elif lot < 0.95:
            await mark_unused(store, SOURCE, named([chosen]))
        else:
            await reset_loaded(store, SOURCE)

    async def _publish(self, store: OwnSegmentStore) -> None:
        """Replace what some adjacent days have, in one interval or one for each; or append a partition."""
        chance = self._world.chance
        first = chance.randrange(DAYS)
        days = range(first, min(DAYS, first + chance.randrange(1, DAYS + 1)))
        intervals = [Interval(day * DAY_MS, (day + 1) * DAY_MS) for day in days]
        if chance.random() < 0.3:
            intervals = [Interval(intervals[0].start_ms, intervals[-1].end_ms)]
        core = chance.randrange(1, 3)
        self._digests += 1
        records = [self._record(SegmentId(each, 1, number), core) for each in intervals for number in range(core)]
        published = await replace_intervals(store, SOURCE, records)
        self._known = [each.segment for each in published] + self._known[:KNOWN_MAX]
        if chance.random() < 0.3:
            chunk = published[0].segment.id._replace(partition=core)
            await publish(store, SOURCE, [self._record(chunk, core)])
            self._known.append(Segment(SOURCE, chunk))

    async def _open(self, store: OwnSegmentStore, members: KeyValues) -> None:
        """A realtime segment, announced by its ingester in the same transaction."""
        chance = self._world.chance
        interval, node = chance.choice(self._known).id.interval, chance.choice(NODES)
        manifest, revision, present = await read_data_source(store, SOURCE)
        after, record = opening(manifest, present, interval, node, 1)
        found = await store.range(chunk_prefix(record.segment), prefix=True)
        compares = [unchanged(manifest, revision), unchanged_chunk(chunk_prefix(record.segment), found.revision)]
        puts = [Put(record.segment.key, record.to_bytes()), Put(after.key, after.to_bytes())]
        request = Txn(tuple(compares), (*puts, Put(record.segment.announcement_key(node))))
        done = await members.write(request, caller=THIS_NODE)
        if done.succeeded:
            self._known = [record.segment, *self._known[:KNOWN_MAX]]
            self._world.count("segments: opened as realtime")

    async def _hand_off(self, store: OwnSegmentStore, chosen: Segment) -> bool:
        """Publish it as its ingester does, while it is announced. Whether it grows."""
        found = (await store.range(chosen.key)).kvs
        record = SegmentRecord.from_bytes(chosen.key, found[0].value) if found else None
        if record is None or not grows(record):
            return False
        self._digests += 1
        after = published(record, 10, 100, f"sha256:{self._digests:064}")
        announced = Compare(chosen.announcement_key(record.ingester), CompareTarget.CREATE, CompareResult.GREATER, 0)
        done = await store.segments_txn(
            [unchanged_record(record, found[0].mod_revision), announced], [Put(chosen.key, after.to_bytes())]
        )
        if done.succeeded:
            self._world.count("segments: handed off")
        return True

    def _record(self, which: SegmentId, core: int) -> SegmentRecord:
        return SegmentRecord(Segment(SOURCE, which), core, 10, 100, f"sha256:{self._digests:064}", 1)

    async def _look_up(self, host: Host, node: Any) -> None:
        """Judged where the node answers, before the answer is sent."""
        epoch = self._world.epoch
        checker = next(each for each in self._world.checkers if isinstance(each, SegmentLookups))
        since = checker.released
        answer: SegmentAnswer | None = None
        try:
            answer = await node.broker.lookup(SOURCE, ALWAYS, OnMissing.ALLOW)
            revision = answer.revision
        except NoSuchDataSource:
            revision = node.broker.revision
        if self._world.epoch == epoch:
            checker.looked_up(host, since, answer, revision)
