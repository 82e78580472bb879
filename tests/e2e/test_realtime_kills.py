"""The ingester is killed at the steps between the close of a realtime segment and the removal of its log (issue 17).

Members are killed meanwhile: each of them has a broker, and the leader is the coordinator. Every count is checked by
the rules of `support/realtime_ground.py`; a fault is planted for each of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from palisade.client import Client
from tests.support.planted_ingester import death_file
from tests.support.processes import until
from tests.support.realtime_ground import (
    BATCH,
    COLUMNS,
    DAY,
    INGESTER,
    OTHERS,
    CountedSource,
    RealtimeGround,
    WrongCount,
)

pytestmark = pytest.mark.e2e

BATCHES = 5


@pytest.fixture
async def ground(data_cluster: Callable[[type[RealtimeGround]], RealtimeGround]) -> RealtimeGround:
    found = data_cluster(RealtimeGround)
    await runs(found, "kills_itself")
    return found


async def runs(ground: RealtimeGround, fault: str) -> None:
    """The ingester, with this fault."""
    program = ["-m", "tests.support.planted_ingester", fault, "palisade.cli"]
    if ground.ingester.program != program:
        ground.ingester.kill()
        ground.ingester.program = program
    await ground.ready()


async def filled(ground: RealtimeGround, client: Client, source: CountedSource) -> str:
    """A segment that grows; its name. It is counted."""
    async with client.realtime(source.name, *DAY, COLUMNS, node=INGESTER, writer="w1", timeout_s=60.0) as writer:
        for _ in range(BATCHES):
            await source.append(writer)
    assert (await source.counted()).rows == BATCHES * BATCH
    return writer.segment


async def dies(ground: RealtimeGround, client: Client, segment: str, step: str) -> None:
    """The segment is closed, and its ingester kills itself at this step. The answer to the request may be lost."""
    death_file(ground.ingester.data_dir).write_text(step, "utf-8")
    closing = asyncio.create_task(client.realtime_close(segment))
    await until(lambda: not ground.ingester.running, f"the death of the ingester at {step}", within_s=60.0)
    closing.cancel()
    await asyncio.wait([closing])


async def members_die(ground: RealtimeGround) -> None:
    """The leader, then another member; each is started again."""
    for victim in (await ground.cluster.leader(), (await ground.cluster.followers())[0]):
        victim.kill()
        await ground.cluster.leader()
        victim.start()
        await ground.cluster.ready()


def is_handed_off(ground: RealtimeGround, client: Client, segment: str) -> Callable[[], object]:
    async def holds() -> bool:
        nodes = (await client.segment(segment))["nodes"]
        return len(nodes) == 1 and nodes[0] in OTHERS and not ground.logs

    return holds


async def test_ingester_killed_between_close_and_publication_publishes_after_its_return(ground: RealtimeGround) -> None:
    source = CountedSource(ground, "closed")
    async with ground.client() as client, source.watched():
        segment = await filled(ground, client, source)
        async with source.without_its_holder():
            await dies(ground, client, segment, "publish")
            assert not (await client.segment(segment))["digest"]
            unavailable = source.unavailable
            await until(lambda: source.unavailable > unavailable, "a count without the ingester")
            await members_die(ground)
            ground.ingester.start()
            await until(ground.ingester.ready, "its return")
        await until(is_handed_off(ground, client, segment), "the hand-off after its return", within_s=60.0)
        last = await source.counted()
    assert (last.rows, last.realtime) == (BATCHES * BATCH, {})


async def test_ingester_killed_before_it_removes_its_log_leaves_every_row_to_the_other_nodes(
    ground: RealtimeGround,
) -> None:
    source = CountedSource(ground, "handed")
    async with ground.client() as client, source.watched():
        segment = await filled(ground, client, source)
        await dies(ground, client, segment, "discard")
        assert ground.logs
        assert set((await client.segment(segment))["nodes"]) & set(OTHERS)
        await members_die(ground)
        assert (await source.counted()).rows == BATCHES * BATCH
        ground.ingester.start()
        await until(is_handed_off(ground, client, segment), "the removal of the log after its return", within_s=60.0)
        last = await source.counted()
    assert (last.rows, last.segments) == (BATCHES * BATCH, 1)


async def restarted(ground: RealtimeGround, fault: str) -> None:
    """With this fault in the new process."""
    source = CountedSource(ground, fault)
    async with ground.client() as client, source.watched():
        await filled(ground, client, source)
        async with source.without_its_holder():
            await runs(ground, fault)


async def handed_off(ground: RealtimeGround, fault: str) -> None:
    """While the other nodes hang, so they cannot announce the segment before the ingester withdraws it."""
    await runs(ground, fault)
    source = CountedSource(ground, fault)
    others = [ground[name] for name in OTHERS]
    async with ground.client() as client, source.watched():
        segment = await filled(ground, client, source)
        for node in others:
            node.pause()
        try:
            await client.realtime_close(segment)
            await until(is_handed_off(ground, client, segment), "the hand-off", within_s=60.0)
        finally:
            for node in others:
                node.resume()


@pytest.mark.parametrize(
    ("scenario", "fault", "found"),
    [
        (restarted, "forgets_its_last_rows", "^80 rows at revision .*, of 100 to 100"),
        (restarted, "counts_its_last_rows_twice", "^120 rows at revision .*, of 100 to 100"),
        (handed_off, "withdraws_before_others_announce", "^(missing at revision|UNAVAILABLE while the holder is up)"),
    ],
)
async def test_planted_fault_is_found(
    ground: RealtimeGround, scenario: Callable[[RealtimeGround, str], Awaitable[None]], fault: str, found: str
) -> None:
    with pytest.raises(WrongCount, match=found):
        await scenario(ground, fault)
