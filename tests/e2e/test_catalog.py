"""Procedures in a cluster of real processes: begun at one node, executed by the next leader, seen on all (F9)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import pytest

from palisade.catalog import keys
from palisade.vault.errors import ReadRefused
from palisade.vault.reader import VaultReader
from tests.support.processes import Cluster, NodeProcess, palisade, until

pytestmark = pytest.mark.e2e

ROWS = 3_000
ONE_WAIT_S = 1.4 * 3.31
"""Distinguishes one wait for an expiring lease from two, on a busy machine, too."""


async def write_rows(node: NodeProcess, data: str) -> None:
    for begin in range(0, ROWS, 500):
        puts = [{"put": {"key": f"{data}m1/{number:06}", "value": "x"}} for number in range(begin, begin + 500)]
        answer = await node.ask("POST", "/v1/txn", {"then": puts})
        assert answer is not None
        assert answer["http_status"] == 200, answer


async def serves(node: NodeProcess) -> bool:
    """Whether readers of its vault are served: then a change has to wait for it."""
    view = await node.get("/v1/fencing")
    return view is not None and view["lease"] is not None and bool(view["lease"]["serves"])


async def count(node: NodeProcess, prefix: str) -> int | None:
    answer = await node.get(f"/v1/kv?prefix={quote(prefix, safe='')}&count_only=true")
    return None if answer is None else int(answer["count"])


async def test_table_is_created_by_command_and_its_drop_survives_the_leader(cluster: Cluster) -> None:
    """Also: scenarios.md, "DROP's physical delete only after PROCEED, with a crash of the leader"."""
    first = cluster.running[0]
    code, out, err = await palisade("catalog", "create-database", "plant", "--endpoints", first.stream)
    assert (code, out.split()[0]) == (0, "create-database:"), err
    code, _, err = await palisade(
        "catalog", "create-table", "plant.readings", "--column", "machine:string:tag", "--endpoints", first.stream
    )
    assert code == 0, err
    for node in cluster.running:
        shown = await node.get("/v1/catalog/tables/plant.readings")
        assert shown is not None
        assert shown["http_status"] == 200, node.id
    data = shown["data"]
    await write_rows(first, data)

    leader = await cluster.leader()
    other = next(node for node in cluster.running if node is not leader)
    begun = await other.ask("DELETE", "/v1/catalog/tables/plant.readings?procedure=gone&wait_s=0")
    assert begun is not None
    assert begun["http_status"] == 202, begun
    leader.kill()

    async def ended() -> dict[str, Any] | None:
        view = await other.get("/v1/procedures/gone?wait_s=1")
        return view if view is not None and view["http_status"] == 200 and view["ended"] else None

    found = await until(ended, "the drop being carried out by the next leader")
    assert found["state"] == "done"
    assert found["destroyed"] == ROWS
    steps = [each["step"] for each in found["steps"]]
    assert steps == ["submitted", "prepared", "released", "destroyed", "done"]
    leader.start()
    await cluster.ready()
    for node in cluster.running:
        assert await count(node, data) == 0
        shown = await node.get("/v1/catalog/tables/plant.readings")
        assert shown is not None
        assert shown["code"] == "catalog-not-there"
        listed = await node.get("/v1/procedures?open=true")
        assert listed is not None
        assert listed["procedures"] == []
    await cluster.equal_digests()


async def test_concurrent_operations_at_all_nodes_are_executed_once(cluster: Cluster) -> None:
    nodes = cluster.running
    await nodes[0].ask("PUT", "/v1/catalog/databases/crowd?wait_s=30")
    columns = [{"name": "value", "type": "double"}]

    async def make(number: int) -> dict[str, Any] | None:
        path = f"/v1/catalog/tables/crowd.t{number % 20}?procedure=t{number % 20}&wait_s=30"
        return await nodes[number % 3].ask("PUT", path, {"columns": columns}, timeout_s=60)

    answers = await asyncio.gather(*(make(number) for number in range(60)))
    assert [answer and answer["http_status"] for answer in answers] == [200] * 60
    listed = await nodes[1].get("/v1/catalog/tables?below=crowd")
    assert listed is not None
    assert len(listed["objects"]) == 20
    dropped = await nodes[2].ask("DELETE", "/v1/catalog/databases/crowd?wait_s=30", timeout_s=60)
    assert dropped is not None
    assert dropped["http_status"] == 200, dropped


@pytest.mark.alone
async def test_command_skips_a_paused_node(cluster: Cluster) -> None:
    """Issue 4, point 4: a node is paused, and the operation completes nevertheless."""
    await cluster.running[0].ask("PUT", "/v1/catalog/databases/still?wait_s=30")
    leader = await cluster.leader()
    for still in (next(node for node in cluster.running if node is not leader), leader):
        endpoints = ",".join([still.stream, *(node.stream for node in cluster.running if node is not still)])
        still.pause()
        code, out, err = await palisade(
            "catalog", "create-table", f"still.{still.id}", "--column", "a:text", "--endpoints", endpoints
        )
        still.resume()
        assert code == 0, err
        assert out.startswith("create-table: done")
        await cluster.ready()
    for node in cluster.running:
        listed = await node.get("/v1/catalog/tables?below=still")
        assert listed is not None
        assert len(listed["objects"]) == 2


@pytest.mark.alone
async def test_drop_waits_for_a_paused_node_before_it_deletes(cluster: Cluster) -> None:
    """scenarios.md: "DROP's physical delete only after PROCEED"; F10: it names the nodes that it waits for; F5: the
    wait ends."""
    leader = await cluster.leader()
    await leader.ask("PUT", "/v1/catalog/databases/slow?wait_s=30", timeout_s=60)
    await leader.ask("PUT", "/v1/catalog/tables/slow.t?wait_s=30", {"columns": [{"name": "a", "type": "text"}]}, 60)
    table = await leader.get("/v1/catalog/tables/slow.t")
    assert table is not None
    await write_rows(leader, table["data"])
    still = next(node for node in cluster.running if node is not leader)
    await until(lambda: serves(still), f"{still.id} serving fenced reads")
    still.pause()
    begun = await leader.ask("DELETE", "/v1/catalog/tables/slow.t?procedure=slow&wait_s=0")
    assert begun is not None
    waited_for: set[str] = set()
    while True:
        left = await count(leader, table["data"])
        view = await leader.get("/v1/procedures/slow")
        assert view is not None
        if view["state"] not in ("submitted", "prepared"):
            break
        assert left == ROWS, "rows are gone before every node has the change, or serves nothing"
        waited_for |= set((view["waiting"] or {"for": []})["for"])
    assert still.id in waited_for, view
    ended = await leader.get("/v1/procedures/slow?wait_s=30", timeout_s=60)
    assert ended is not None
    assert (ended["state"], ended["released"], ended["destroyed"]) == ("done", True, ROWS)
    steps = {each["step"]: each["at_ms"] for each in ended["steps"]}
    assert steps["released"] - steps["prepared"] < 10_000
    still.resume()
    await cluster.ready()
    assert await count(still, table["data"]) == 0


class Looks:
    """The results of continuous reads of one key by another process on a node's machine: present, absent, or
    refused."""

    def __init__(self, reader: VaultReader, key: bytes) -> None:
        self._reader, self._key = reader, key
        self.seen: list[tuple[float, str]] = []

    async def go_on(self) -> None:
        while True:
            began = time.monotonic()
            try:
                found = await self._reader.get_async(self._key)
                self.seen.append((began, "absent" if found is None else "there"))
            except ReadRefused:
                self.seen.append((began, "refused"))
            await asyncio.sleep(0.005)

    def since(self, moment: float) -> set[str]:
        return {what for began, what in self.seen if began >= moment}


@asynccontextmanager
async def looking(node: NodeProcess, key: bytes) -> AsyncIterator[Looks]:
    reader = VaultReader(node.data_dir / "vault", wait_s=0.2)
    looks = Looks(reader, key)
    task = asyncio.create_task(looks.go_on())
    try:
        yield looks
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        reader.close()


async def fenced_s(node: NodeProcess) -> float:
    view = await node.get("/v1/fencing")
    assert view is not None
    return float(view["lease"]["fenced_s"])


@pytest.mark.alone
async def test_paused_node_never_serves_the_old_catalog(
    cluster: Cluster,
) -> None:
    """Issue 4, "Shown by" 4: SIGSTOP, `create-table`, SIGCONT; the node is fenced, recovers, and shows the table."""
    leader, (still, other) = await cluster.leader(), await cluster.followers()
    await leader.ask("PUT", "/v1/catalog/databases/plant?wait_s=30", timeout_s=60)
    for node in cluster.nodes:
        await until(lambda node=node: serves(node), f"{node.id} serving fenced reads")
    async with looking(still, keys.at(keys.TABLES, "plant.readings")) as looks:
        await until(lambda: looks.seen and looks.seen[-1][1] == "absent", "the reader being shown the old catalog")
        before_s = await fenced_s(still)
        still.pause()
        code, _, err = await palisade(
            "catalog", "create-table", "plant.readings", "--column", "a:text", "--procedure", "made",
            "--endpoints", other.stream,
        )  # fmt: skip
        answered = time.monotonic()
        assert code == 0, err
        steps = {each["step"]: each["at_ms"] for each in (await other.get("/v1/procedures/made") or {})["steps"]}
        assert steps["done"] - steps["submitted"] < ONE_WAIT_S * 1000
        await until(lambda: "refused" in looks.since(answered), "readers of the still node being refused")
        assert looks.since(answered) == {"refused"}
        still.resume()
        await until(lambda: looks.seen[-1][1] == "there", "the node showing the table")
        assert looks.since(answered) == {"refused", "there"}
        assert await fenced_s(still) > before_s
        shown = await still.get("/v1/catalog/tables/plant.readings")
        assert shown is not None
        assert shown["http_status"] == 200
