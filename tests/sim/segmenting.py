"""A user of segments: publishes, assigns, marks unused, sets replicas, resets, and looks up at every node (issue 17).

The data nodes are the product's own: they fetch, announce, move and remove the copies, and the leader's coordinator
marks as loaded what is announced. The scenarios `segments` and `expiry` have this client, and those of `ingesting.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from palisade.api.segment_service import OwnSegmentStore
from palisade.catalog.segment import Segment, SegmentRecord
from palisade.catalog.timeline import Interval, SegmentId
from palisade.client.publishing import publish, replace_intervals
from palisade.client.record_choice import named
from palisade.client.segment_changes import mark_unused, reset_loaded, set_replicas
from palisade.metastore.requests import DeleteRange
from palisade.segments.assigning import assign_segments
from palisade.segments.broker_view import OnMissing, SegmentAnswer
from palisade.segments.realtime_handoff import parquet
from palisade.segments.verification import version_of
from palisade.service.callers import THIS_NODE
from palisade.wire.segment_errors import NoSuchDataSource
from tests.sim.checkers.segment_lookups import SegmentLookups
from tests.sim.checkers.segment_rows import COLUMNS
from tests.sim.clients import Client
from tests.sim.node import Host
from tests.sim.segment_client import REFUSED, SegmentClient
from tests.sim.settling import SegmentSettler
from tests.support.segment_writer import ALWAYS, DAY_MS, DAYS, SOURCE

KNOWN_MAX = 6
"""Older segments that stay beside a new publication."""
LOOKUPS = 4
"""After each change."""
PAUSE_S = 0.4
"""The longest one between two requests."""
ROWS_MAX = 5


class Segmenter(SegmentClient):
    def __init__(self, client: Client, going: Callable[[], bool]) -> None:
        super().__init__(client, going)
        self._files = 0
        self._known: list[Segment] = []

    async def run(self) -> None:
        while self.going():
            await self._try(self.chance.choice(self.world.members), self._change)
            for _ in range(LOOKUPS):
                host = self.chance.choice([*self.world.hosts.values()])
                await self._try(host, lambda node, at=host: self._look_up(at, node))  # type: ignore[misc]
                await asyncio.sleep(PAUSE_S * self.chance.random() ** 3)
        await SegmentSettler(self.client).run()

    async def _try(self, host: Host, work: Callable[[Any], Awaitable[None]]) -> None:
        try:
            await self.ask(host, work)
        except REFUSED:
            self.world.count("segments: refused")

    async def _change(self, node: Any) -> None:
        chance, store = self.chance, OwnSegmentStore(node.key_values)
        lot = chance.random()
        if lot < 0.15 or not self._known:
            await self._publish(store)
            await self._assign(store)
            return
        chosen = chance.choice(self._known)
        if lot < 0.7:
            await self._assign(store)
        elif lot < 0.78:
            key = chosen.announcement_key(chance.choice(self.world.data_nodes))
            await node.key_values.write(DeleteRange(key), caller=THIS_NODE)
        elif lot < 0.9:
            await set_replicas(store, SOURCE, chance.randrange(3), named([chosen]))
        elif lot < 0.95:
            await mark_unused(store, SOURCE, named([chosen]))
        else:
            await reset_loaded(store, SOURCE)

    async def _assign(self, store: OwnSegmentStore) -> None:
        """To two of the data nodes, so copies move."""
        nodes = self.chance.sample(self.world.data_nodes, 2)
        await assign_segments(store, nodes, None, "", lambda done, total: None)

    async def _publish(self, store: OwnSegmentStore) -> None:
        """Replace what some adjacent days have, in one interval or one for each; or append a partition."""
        chance = self.chance
        first = chance.randrange(DAYS)
        days = range(first, min(DAYS, first + chance.randrange(1, DAYS + 1)))
        intervals = [Interval(day * DAY_MS, (day + 1) * DAY_MS) for day in days]
        if chance.random() < 0.2:
            intervals = [Interval(intervals[0].start_ms, intervals[-1].end_ms)]
        core = chance.randrange(1, 3)
        records = [self._record(SegmentId(each, 1, number), core) for each in intervals for number in range(core)]
        published = await replace_intervals(store, SOURCE, records)
        old, self._known = self._known[KNOWN_MAX:], [each.segment for each in published] + self._known[:KNOWN_MAX]
        if old:
            await mark_unused(store, SOURCE, named(old))
        if chance.random() < 0.3:
            chunk = published[0].segment.id._replace(partition=core)
            await publish(store, SOURCE, [self._record(chunk, core)])
            self._known.append(Segment(SOURCE, chunk))

    def _record(self, which: SegmentId, core: int) -> SegmentRecord:
        """Of a new file with other rows than any before."""
        self._files += 1
        rows = self.chance.randrange(1, ROWS_MAX + 1)
        content = parquet(COLUMNS, [[1000 * self._files + number] for number in range(rows)])
        wanted = version_of(content)
        self.world.segment_files[wanted.digest] = content
        replicas = self.chance.randrange(1, 3)
        return SegmentRecord(Segment(SOURCE, which), core, rows, wanted.size_bytes, wanted.digest, replicas)

    async def _look_up(self, host: Host, node: Any) -> None:
        """Judged where the node answers, before the answer is sent."""
        epoch = self.world.epoch
        checker = self.world.checker(SegmentLookups)
        since = checker.released
        answer: SegmentAnswer | None = None
        try:
            answer = await node.broker.lookup(SOURCE, ALWAYS, OnMissing.ALLOW)
            revision = answer.revision
        except NoSuchDataSource:
            revision = node.broker.revision
        if self.world.epoch == epoch:
            checker.looked_up(host, since, answer, revision)
