"""Processes that stand still: SIGSTOP for longer than the election timeout, and majorities that are away.

After the pause an old leader must not answer a read out of its own past (etcd #20418), and must follow the new one.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.support.load import Load, check_record
from tests.support.processes import Cluster, NodeProcess, until
from tests.support.reads import CounterReads

pytestmark = pytest.mark.e2e


async def test_a_leader_that_was_paused_answers_no_stale_read_and_follows(cluster: Cluster) -> None:
    """Reads that reach it during the pause wait in its sockets: they are what it sees first when it goes on."""
    async with Load(cluster.endpoints, "pause") as load, CounterReads(cluster.endpoints) as reads:
        for _ in range(2):
            await load.writes(100)
            old = await cluster.leader()
            others = [node for node in cluster.nodes if node is not old]
            old.pause()
            waiting = [asyncio.ensure_future(reads.read_once(old.stream)) for _ in range(20)]
            new = await cluster.leader(others)
            before = reads.writes
            await until(lambda: reads.writes >= before + 20, "writes under the new leader")
            read_before = reads.reads[old.stream]
            old.resume()
            await asyncio.gather(*waiting)
            await until(lambda: follows(old, new), "the old leader following")
            await until(lambda: reads.reads[old.stream] >= read_before + 20, "reads through the old leader")
    assert reads.stale == []
    await check_record(load.record, load.prefix, cluster.endpoints)
    await cluster.equal_digests()


async def follows(old: NodeProcess, new: NodeProcess) -> bool:
    status = await old.status()
    return status.get("role") == "follower" and status["leader"] == new.id
