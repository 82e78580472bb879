"""Realtime segments on real nodes: their ingester is killed in growth and in the hand-off, under counts (issue 17).

No count is wrong: each has every row that was acknowledged before it began, and no row that was not sent before it
ended. While the ingester is down, counts are UNAVAILABLE with the name of its segment.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from palisade.base.http_request import HttpRequests
from palisade.cli.query import TIMEOUT_S, DataNodes
from palisade.client import Client
from palisade.client.realtime import RealtimeWriter
from palisade.client.segment_query import Counted, count_rows, lookup_all
from palisade.segments.assigning import assign_segments
from palisade.wire.segment_errors import NoSuchDataSource, SegmentsUnavailable
from tests.support.processes import Cluster, palisade, until
from tests.support.segment_ground import DataNode

pytestmark = pytest.mark.e2e

DAY = "2013-03-01", "2013-03-02"
COLUMNS = {"id": "int", "at": "timestamp"}
INGESTER, OTHERS = "f1", ("f2", "f3")
BATCH = 20
PAUSE_S = 0.02


class Ground:
    """`sent`, `acknowledged`: rows of the data source. `wrong`: counts that returned another number."""

    def __init__(self, folder: Path) -> None:
        self.cluster = Cluster(folder)
        at = self.cluster["n1"].http
        self.nodes = {name: DataNode(folder, name, join=at) for name in (INGESTER, *OTHERS)}
        self.folder = folder / INGESTER / "realtime"
        self.sent = self.acknowledged = 0
        self.counts = self.unavailable = 0
        self.last: Counted | None = None

    async def ready(self) -> None:
        self.cluster.start()
        await self.cluster.ready()
        for node in self.nodes.values():
            if not node.running:
                node.start()
        for node in self.nodes.values():
            await until(node.ready, f"{node.id} being ready")

    def client(self) -> Client:
        return Client(self.cluster.endpoints, timeout_s=15.0)

    async def append(self, writer: RealtimeWriter) -> None:
        rows = [[self.sent + number, "2013-03-01T06:00:00Z"] for number in range(BATCH)]
        self.sent += BATCH
        await writer.append(rows)
        self.acknowledged += BATCH

    async def count(self, client: Client, requests: HttpRequests, data_source: str, attempts: int = 1) -> None:
        least = self.acknowledged
        try:
            found = await count_rows(
                lambda: lookup_all(client, data_source, *DAY),
                DataNodes(client, requests).rows,
                attempts=attempts,
                rng=random.Random(),
                pause=asyncio.sleep,
            )
        except (SegmentsUnavailable, NoSuchDataSource):
            self.unavailable += 1
            return
        assert least <= found.rows <= self.sent, f"{found.rows} rows, of {least} to {self.sent}"
        self.counts += 1
        self.last = found

    async def counting(self, data_source: str, attempts: int = 1) -> None:
        async with self.client() as client, HttpRequests(timeout_s=TIMEOUT_S) as requests:
            while True:
                await self.count(client, requests, data_source, attempts)
                await asyncio.sleep(PAUSE_S)

    async def appending(self, writer: RealtimeWriter) -> None:
        while True:
            await self.append(writer)
            await asyncio.sleep(PAUSE_S)


@pytest.fixture(scope="module")
def shared_ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    ground = Ground(tmp_path_factory.mktemp("realtime"))
    yield ground
    ground.cluster.kill()
    for node in ground.nodes.values():
        node.kill()


@pytest.fixture
async def ground(shared_ground: Ground) -> Ground:
    await shared_ground.ready()
    async with shared_ground.client() as client:
        await assign_segments(client, OTHERS, None, "", lambda done, of: None)
    return shared_ground


async def test_ingester_killed_in_growth_and_in_the_hand_off_costs_no_row_and_no_wrong_count(ground: Ground) -> None:
    ingester = ground.nodes[INGESTER]
    async with ground.client() as client:
        writer = client.realtime("sales", *DAY, COLUMNS, node=INGESTER, writer="w1", timeout_s=60.0)
        async with writer, asyncio.TaskGroup() as group:
            counting = group.create_task(ground.counting("sales"))
            appending = group.create_task(ground.appending(writer))
            await until(lambda: ground.acknowledged >= 5 * BATCH and ground.counts >= 10, "rows and counts")
            assert ground.last is not None
            assert ground.last.realtime.keys() == {writer.segment}

            ingester.kill()
            unavailable, rows = ground.unavailable, ground.acknowledged
            await until(lambda: ground.unavailable > unavailable, "a count of a dead ingester")
            ingester.start()
            await until(lambda: ground.acknowledged > rows + 5 * BATCH, "rows after its return", within_s=60.0)
            assert writer.rows == ground.acknowledged
            appending.cancel()
            await asyncio.wait([appending])

            closed = await writer.close()
            assert ground.acknowledged <= closed <= ground.sent

            async def published() -> bool:
                return bool((await client.segment(writer.segment))["digest"])

            await until(published, "its publication")
            ingester.kill()
            ingester.start()

            async def handed_off() -> bool:
                nodes = (await client.segment(writer.segment))["nodes"]
                return len(nodes) == 1 and nodes[0] in OTHERS and not any(ground.folder.iterdir())

            await until(handed_off, "the hand-off after its return", within_s=60.0)
            counts = ground.counts
            await until(lambda: ground.counts > counts + 5, "counts after the hand-off")
            counting.cancel()
    record_rows = ground.last.rows if ground.last is not None else 0
    assert record_rows == closed
    assert ground.last is not None
    assert not ground.last.realtime


async def test_commands_open_count_close_and_list_a_realtime_segment(ground: Ground, tmp_path: Path) -> None:
    endpoints = "--endpoints", ",".join(ground.cluster.endpoints)
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f'[{number}, "2013-03-01T06:00:00Z"]\n' for number in range(30)), encoding="utf-8")
    times = "--from", DAY[0], "--to", DAY[1]
    columns = "--column", "id=int", "--column", "at=timestamp"
    where = "--node", INGESTER, "--writer", "cli"

    async def run(*arguments: str, code: int = 0) -> str:
        found, out, err = await palisade(*arguments, *endpoints)
        assert found == code, (arguments, out, err)
        return out

    name = (await run("segments", "realtime", "append", "orders", str(rows), *times, *columns, *where)).split(":")
    segment = ":".join(name[:-1])
    assert "30 rows" in name[-1]
    again = await run("segments", "realtime", "append", "orders", str(rows), *times, *columns, *where)
    assert again.startswith(f"{segment}: 30 rows")
    assert (await run("query", "count", "orders", *times)).strip() == "30"
    listed = await run("segments", "realtime", "list", "orders")
    assert listed.split("\n")[1].split("\t")[:4] == [segment, INGESTER, "realtime", "30"]
    await run("segments", "mark-unused", "orders", segment, code=1)
    await run("segments", "realtime", "give-up", segment, "--reason", "none", code=1)
    await run("segments", "realtime", "close", segment)

    async def served() -> bool:
        return "served" in await run("segments", "list", "orders")

    await until(served, "the publication")
    assert (await run("query", "count", "orders", *times)).strip() == "30"


async def test_segment_of_a_lost_ingester_is_unavailable_until_it_is_given_up(ground: Ground) -> None:
    endpoints = "--endpoints", ",".join(ground.cluster.endpoints)
    times = "--from", DAY[0], "--to", DAY[1]
    async with ground.client() as client:
        async with client.realtime("logs", *DAY, COLUMNS, node=INGESTER) as writer:
            await writer.append([[1, None]])
        ground.nodes[INGESTER].kill()

        async def missing() -> bool:
            code, _, err = await palisade("query", "count", "logs", *times, *endpoints)
            return code == 3 and writer.segment in err

        await until(missing, "the count being UNAVAILABLE")

        async def given_up() -> bool:
            arguments = "segments", "realtime", "give-up", writer.segment, "--reason", "its disk is lost"
            return (await palisade(*arguments, *endpoints))[0] == 0

        await until(given_up, "the end of its lease", within_s=60.0)
        code, out, _ = await palisade("query", "count", "logs", *times, *endpoints)
        assert (code, out.strip()) == (0, "0 (without 1 segments of replication factor 0)")
        assert [each["reason"] for each in await client.realtime_given_up()] == ["its disk is lost"]
        ground.nodes[INGESTER].start()
        await until(ground.nodes[INGESTER].ready, "its return")
