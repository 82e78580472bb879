"""Realtime segments on real nodes: their ingester is killed in growth and in the hand-off, under counts (issue 17).

No count is wrong: each has every row that was acknowledged before it began, and no row that was not sent before it
ended. While the ingester is down, counts are UNAVAILABLE with the name of its segment.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from palisade.cli.query_waiting import short
from tests.support.processes import palisade, until
from tests.support.realtime_ground import BATCH, COLUMNS, DAY, INGESTER, OTHERS, CountedSource, RealtimeGround

pytestmark = pytest.mark.e2e


@pytest.fixture
async def ground(data_cluster: Callable[[type[RealtimeGround]], RealtimeGround]) -> RealtimeGround:
    found = data_cluster(RealtimeGround)
    await found.ready()
    return found


async def test_ingester_killed_in_growth_and_in_the_hand_off_costs_no_row_and_no_wrong_count(
    ground: RealtimeGround,
) -> None:
    ingester, source = ground.ingester, CountedSource(ground, "sales")
    async with (
        ground.client() as client,
        source.watched(),
        client.realtime("sales", *DAY, COLUMNS, node=INGESTER, writer="w1", timeout_s=60.0) as writer,
    ):
        appending = asyncio.create_task(source.appending(writer))
        await until(lambda: source.acknowledged >= 5 * BATCH and source.counts >= 10, "rows and counts")
        assert source.last is not None
        assert source.last.realtime.keys() == {writer.segment}
        async with source.without_its_holder():
            ingester.kill()
            unavailable, rows = source.unavailable, source.acknowledged
            await until(lambda: source.unavailable > unavailable, "a count of a dead ingester")
            ingester.start()
            await until(lambda: source.acknowledged > rows + 5 * BATCH, "rows after its return", within_s=60.0)
        assert writer.rows == source.acknowledged
        appending.cancel()
        await asyncio.wait([appending])
        closed = await writer.close()
        assert source.acknowledged <= closed <= source.sent

        async def published() -> bool:
            return bool((await client.segment(writer.segment))["digest"])

        async with source.without_its_holder():
            await until(published, "its publication")
            ingester.kill()
            ingester.start()

            async def handed_off() -> bool:
                nodes = (await client.segment(writer.segment))["nodes"]
                return len(nodes) == 1 and nodes[0] in OTHERS and not ground.logs

            await until(handed_off, "the hand-off after its return", within_s=60.0)
        last = await source.counted()
    assert (last.rows, last.realtime) == (closed, {})


async def test_commands_open_count_close_and_list_a_realtime_segment(ground: RealtimeGround, tmp_path: Path) -> None:
    endpoints = "--endpoints", ",".join(ground.cluster.endpoints)
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f'[{number}, "2013-03-01T06:00:00Z"]\n' for number in range(30)), encoding="utf-8")
    times = "--from", DAY[0], "--to", DAY[1]
    columns = "--column", "id:int", "--column", "at:timestamp"
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

    unnamed = "segments", "realtime", "append", "orders", str(rows), *times, *columns
    assert (await run(*unnamed)).endswith(": 30 rows, closed\n"), "no other command could continue it"
    rows.write_text("[1, null]\n" * 1_000 + "no row\n", encoding="utf-8")
    code, _, err = await palisade(*unnamed, *endpoints)
    assert (code, "line 1001" in err) == (2, True)
    (left,) = re.findall(r"; (orders/\S+) stays open at node \S+ with 1000 rows\. Correct FILE first\. To", err)
    assert left in await run("segments", "realtime", "list", "orders")
    await run("segments", "realtime", "close", left)


async def test_segment_of_a_lost_ingester_is_unavailable_until_it_is_given_up(ground: RealtimeGround) -> None:
    endpoints = "--endpoints", ",".join(ground.cluster.endpoints)
    times = "--from", DAY[0], "--to", DAY[1]
    async with ground.client() as client:
        async with client.realtime("logs", *DAY, COLUMNS, node=INGESTER, writer="w1") as writer:
            await writer.append([[1, None]])
        ground.ingester.kill()

        async def missing() -> bool:
            code, _, err = await palisade("query", "count", "logs", *times, *endpoints)
            notice = f"palisade: waiting: 1 segment without a server: {short(writer.segment)} (on {INGESTER})"
            return code == 3 and writer.segment in err.splitlines() and notice in err

        await until(missing, "the count being UNAVAILABLE")

        async def given_up() -> bool:
            arguments = "segments", "realtime", "give-up", writer.segment, "--reason", "its disk is lost"
            return (await palisade(*arguments, *endpoints))[0] == 0

        await until(given_up, "the end of its lease", within_s=60.0)
        code, out, _ = await palisade("query", "count", "logs", *times, *endpoints)
        assert (code, out.strip()) == (0, "0 (without 1 segment of replication factor 0)")
        assert [each["reason"] for each in await client.realtime_given_up()] == ["its disk is lost"]
        ground.ingester.start()
        await until(ground.ingester.ready, "its return")
