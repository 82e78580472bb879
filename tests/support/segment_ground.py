"""A cluster of real processes with three data nodes that hold days of flights, and moves of their copies."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from palisade.catalog.demo.segments import records_of
from palisade.catalog.demo.tables import FLIGHTS
from palisade.catalog.segment import ANNOUNCED, announced_by
from palisade.cli.scenarios.counting import QueryCounts
from palisade.cli.scenarios.local_data import first_days, write_origin
from palisade.client import Client
from palisade.client.publishing import publish
from palisade.segments.assigning import assign_segments
from tests.support.data_nodes import DataCluster
from tests.support.processes import until

DAYS = 6
START, END = "2013-01-01", "2013-01-07"
PAIRS = (("f1", "f2"), ("f2", "f3"), ("f1", "f3"))
REPLICAS = 2


class SegmentGround(DataCluster):
    def __init__(self, folder: Path) -> None:
        origin = folder / "origin"
        super().__init__(folder, segments_origin=str(origin))
        rows = first_days(DAYS)
        write_origin(origin, rows)
        self.records = records_of(FLIGHTS, rows)
        self.rows = len(rows)
        self.pair = PAIRS[0]
        self.moves = 0
        self._published = False

    async def ready(self) -> None:
        """Every process runs, and two data nodes announce each segment."""
        await super().ready()
        async with self.client() as client:
            if not self._published:
                await publish(client, FLIGHTS.name, self.records)
                self._published = True
            await self.assign(client, self.pair)
            await until(lambda: self.is_settled(client), f"{self.pair} announcing each segment, and no other node")
            await until(lambda: self.is_loaded(client), "the coordinator marking each segment as loaded")

    def counts(self) -> QueryCounts:
        return QueryCounts(self.cluster.endpoints, FLIGHTS.name, START, END, self.rows)

    async def assign(self, client: Client, pair: tuple[str, str]) -> None:
        self.pair = pair
        await assign_segments(client, pair, REPLICAS, "", lambda done, of: None)
        self.moves += 1

    async def announcements(self, client: Client) -> Counter[str]:
        """The number of announced segments by node."""
        found = await client.range(ANNOUNCED, prefix=True)
        return Counter(announced_by(kv.key)[0] for kv in found.kvs)

    async def is_settled(self, client: Client) -> bool:
        return await self.announcements(client) == dict.fromkeys(self.pair, DAYS)

    async def is_loaded(self, client: Client) -> bool:
        listed = await client.segments_list(FLIGHTS.name)
        return Counter(each["state"] for each in listed["segments"])["served"] == DAYS

    async def moving(self, goes_on: Callable[[], bool], rng: random.Random) -> None:
        """Assigns the segments to another pair, repeatedly; some moves are overtaken by the next one."""
        async with self.client() as client:
            while goes_on():
                await self.assign(client, rng.choice([pair for pair in PAIRS if pair != self.pair]))
                if rng.random() < 0.7:
                    await until(lambda: self.is_settled(client), "the end of a move")
                else:
                    await asyncio.sleep(rng.random() / 10)
