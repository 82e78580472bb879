"""Realtime segments on real data nodes, with counts that are checked.

Each count has every row that was acknowledged before it began, and no row that was not sent before it ended; so no row
is lost, and none counted twice. No answer of a broker reports a missing segment while its holder is up.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from palisade.base.http_request import HttpRequests
from palisade.cli.query import TIMEOUT_S, DataNodes
from palisade.cli.scenarios.counting import ATTEMPTS
from palisade.client import Client
from palisade.client.realtime import RealtimeWriter
from palisade.client.segment_query import Counted, count_rows, lookup_all
from palisade.raftgroup.errors import Unavailable
from palisade.segments.assigning import assign_segments
from palisade.vault.errors import VaultError
from palisade.wire.segment_errors import BrokerNotSynced, NoSuchDataSource, SegmentsUnavailable
from tests.support.data_nodes import DataCluster
from tests.support.processes import NodeProcess, until

DAY = "2013-03-01", "2013-03-02"
COLUMNS = {"id": "int", "at": "timestamp"}
INGESTER, OTHERS = "f1", ("f2", "f3")
BATCH = 20
PAUSE_S = 0.02


class WrongCount(AssertionError):
    """A count that the rules above do not allow."""


class RealtimeGround(DataCluster):
    """Closed segments are assigned to one of `OTHERS`."""

    @property
    def ingester(self) -> NodeProcess:
        return self[INGESTER]

    @property
    def logs(self) -> list[Path]:
        folder = self.ingester.data_dir / "realtime"
        return list(folder.iterdir()) if folder.exists() else []

    async def ready(self) -> None:
        await super().ready()
        async with self.client() as client:
            await assign_segments(client, OTHERS, None, "", lambda done, of: None)


class CountedSource:
    """A data source with one writer. `sent`, `acknowledged`: its rows. `may_be_missing`: set while its holder is down.
    `last`: the last count."""

    def __init__(self, ground: RealtimeGround, name: str) -> None:
        self.ground, self.name = ground, name
        self.sent = self.acknowledged = 0
        self.counts = self.unavailable = 0
        self.may_be_missing = False
        self.last: Counted | None = None

    async def append(self, writer: RealtimeWriter) -> None:
        rows = [[self.sent + number, "2013-03-01T06:00:00Z"] for number in range(BATCH)]
        self.sent += BATCH
        await writer.append(rows)
        self.acknowledged += BATCH

    async def appending(self, writer: RealtimeWriter) -> None:
        while True:
            await self.append(writer)
            await asyncio.sleep(PAUSE_S)

    async def counting(self) -> None:
        now = asyncio.get_running_loop().time
        async with self.ground.client() as client, HttpRequests(timeout_s=TIMEOUT_S) as requests:
            while True:
                await self.count(client, DataNodes(client, requests, now))
                await asyncio.sleep(PAUSE_S)

    async def count(self, client: Client, nodes: DataNodes) -> None:
        """Raises WrongCount."""
        least, may_be_missing = self.acknowledged, self.may_be_missing
        attempts = 1 if may_be_missing else ATTEMPTS

        async def lookup() -> Any:
            found = await lookup_all(client, self.name, *DAY)
            if found["missing"] and not (may_be_missing or self.may_be_missing):
                raise WrongCount(f"missing at revision {found['revision']}: {found['missing']}")
            return found

        try:
            found = await count_rows(lookup, nodes.rows, attempts=attempts, rng=random.Random(), pause=asyncio.sleep)
        except SegmentsUnavailable as error:
            if not (may_be_missing or self.may_be_missing):
                raise WrongCount(f"UNAVAILABLE while the holder is up: {error}") from error
            self.unavailable += 1
        except (NoSuchDataSource, BrokerNotSynced, Unavailable, VaultError):
            """Before the first segment, or while no member may answer: not a count."""
        else:
            if not least <= found.rows <= self.sent:
                raise WrongCount(f"{found.rows} rows at revision {found.revision}, of {least} to {self.sent}: {found}")
            self.counts += 1
            self.last = found

    async def counted(self, more: int = 3) -> Counted:
        """After this number of further counts, which begin now."""
        counts = self.counts
        await until(lambda: self.counts > counts + more, f"{more} counts of {self.name}", within_s=60.0)
        assert self.last is not None
        return self.last

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Counts run meanwhile. A wrong one ends the block, and is raised."""
        try:
            async with asyncio.TaskGroup() as group:
                counting = group.create_task(self.counting())
                yield
                counting.cancel()
        except ExceptionGroup as group:
            wrong = group.subgroup(WrongCount)
            raise (group if wrong is None else wrong.exceptions[0]) from None

    @asynccontextmanager
    async def without_its_holder(self) -> AsyncIterator[None]:
        """Lookups may report it as missing, from here until it is counted again after the block."""
        self.may_be_missing = True
        yield
        await self.counted()
        self.may_be_missing = False
        await self.counted()
