"""kill -9 of any and of all nodes under load: no acknowledged write is lost (issue 2, "Shown by 3"; M9)."""

from __future__ import annotations

import time

import pytest

from tests.support.load import Load, check_record
from tests.support.processes import Cluster, NodeProcess

pytestmark = pytest.mark.e2e

WRITES_GO_ON_S = 5.0
"""One election, and a second one after a split vote. `scripts/bench kills` measures the 2.5 s of issue 2."""
HARDLY_S = 2.0
"""Less than an election takes."""


async def whole_again(cluster: Cluster, load: Load) -> None:
    """Start the stopped nodes; then every acknowledged write exists, and the replicas are equal."""
    cluster.start()
    await cluster.ready()
    await load.writes(50)
    record = await load.stop()
    await check_record(record, load.prefix, cluster.endpoints)
    await cluster.equal_digests()


async def test_killed_follower_is_hardly_noticed(cluster: Cluster) -> None:
    async with Load(cluster.endpoints, "follower") as load:
        await load.writes(200)
        victim = (await cluster.followers())[0]
        victim.kill()
        killed_at = time.monotonic()
        await load.writes(200)
        assert load.record.gap_s(killed_at, time.monotonic()) < HARDLY_S
        await whole_again(cluster, load)


@pytest.mark.alone
async def test_killed_leader_is_replaced_in_time_and_no_write_is_lost(cluster: Cluster) -> None:
    async with Load(cluster.endpoints, "leader") as load:
        for _ in range(2):
            await load.writes(200)
            leader = await cluster.leader()
            leader.kill()
            assert await load.writes_sent_after(time.monotonic()) <= WRITES_GO_ON_S
            leader.start()
            await cluster.ready()
        await whole_again(cluster, load)


async def test_killing_all_nodes_at_once_loses_nothing(cluster: Cluster) -> None:
    async with Load(cluster.endpoints, "all", timeout_s=20) as load:
        for _ in range(2):
            await load.writes(300)
            for node in cluster.nodes:
                node.kill()
            cluster.start()
            await cluster.ready()
        await whole_again(cluster, load)


async def test_killing_one_node_after_the_other_loses_nothing(cluster: Cluster) -> None:
    """Each time the remaining nodes hold the acknowledged writes of the next victim (etcd's robustness suite)."""
    async with Load(cluster.endpoints, "each") as load:
        for node in cluster.nodes:
            await load.writes(100)
            node.kill()
            node.start()
            await cluster.ready()
        await whole_again(cluster, load)


async def test_majority_killed_at_once_comes_back(cluster: Cluster) -> None:
    async with Load(cluster.endpoints, "majority", timeout_s=20) as load:
        await load.writes(100)
        victims: list[NodeProcess] = [await cluster.leader(), (await cluster.followers())[0]]
        for node in victims:
            node.kill()
        for node in victims:
            node.start()
        await whole_again(cluster, load)


async def test_full_restart_is_quick_and_finds_the_same_data(cluster: Cluster) -> None:
    async with Load(cluster.endpoints, "restart") as load:
        await load.writes(300)
    before = await cluster.equal_digests()
    for kill in (False, True):
        for node in cluster.nodes:
            if kill:
                node.kill()
            else:
                node.interrupt()
        for node in cluster.nodes:
            assert await node.ended() == (-9 if kill else 0)
        began = time.monotonic()
        cluster.start()
        await cluster.ready()
        assert time.monotonic() - began < 10
        assert (await cluster.equal_digests())["chain"] == before["chain"]
    await check_record(load.record, load.prefix, cluster.endpoints)
