"""A client of segments: publishes, announces and drops copies, changes records, and looks up at every node (issue 17).

The nodes' own coordinator marks as loaded what is announced. Only the scenario `segments` has this client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from palisade.api.segment_service import OwnSegmentStore
from palisade.base.errors import PalisadeError
from palisade.catalog.segment import Segment, SegmentRecord
from palisade.catalog.timeline import Interval, SegmentId
from palisade.client.publishing import publish
from palisade.client.record_choice import named
from palisade.client.segment_changes import mark_unused, reset_loaded, set_replicas
from palisade.metastore.requests import DeleteRange, Put
from palisade.segments.broker_view import OnMissing
from palisade.service.callers import THIS_NODE
from palisade.wire.segment_errors import NoSuchDataSource
from tests.sim.checkers.segment_lookups import ALWAYS, SOURCE, SegmentLookups
from tests.sim.clients import TIMEOUT_S, Client
from tests.sim.node import Host
from tests.sim.outcomes import EXPECTED

SERVERS = ("a", "b")
DAYS = 3
DAY_MS = 4
LOOKUPS = 4
"""After each change."""


class Segmenter:
    def __init__(self, client: Client, going: Callable[[], bool]) -> None:
        self._client, self._going = client, going
        self._world = client.world
        self._digests = 0

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
        chance = self._world.chance
        which = chance.randrange(DAYS)
        store = OwnSegmentStore(node.key_values)
        interval = Interval(which * DAY_MS, (which + 1) * DAY_MS)
        chosen = Segment(SOURCE, SegmentId(interval, chance.randrange(1, 3), 0))
        lot = chance.random()
        if lot < 0.15:
            self._digests += chance.randrange(2)
            digest = f"sha256:{self._digests:064}"
            first = Segment(SOURCE, SegmentId(interval, 1, 0))
            await publish(store, SOURCE, [SegmentRecord(first, 1, 10, 100, digest, 1)])
        elif lot < 0.85:
            key = chosen.announcement_key(chance.choice(SERVERS))
            request = Put(key) if chance.random() < 0.6 else DeleteRange(key)
            await node.key_values.write(request, caller=THIS_NODE)
        elif lot < 0.9:
            await set_replicas(store, SOURCE, chance.randrange(2), named([chosen]))
        elif lot < 0.95:
            await mark_unused(store, SOURCE, named([chosen]))
        else:
            await reset_loaded(store, SOURCE)

    async def _look_up(self, host: Host, node: Any) -> None:
        """Judged where the node answers, before the answer is sent."""
        epoch = self._world.epoch
        checker = next(each for each in self._world.checkers if isinstance(each, SegmentLookups))
        since = checker.released
        try:
            answer = await node.broker.lookup(SOURCE, ALWAYS, OnMissing.ALLOW)
        except NoSuchDataSource:
            return
        if self._world.epoch == epoch:
            checker.looked_up(host, since, answer)
