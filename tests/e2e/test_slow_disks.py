"""A disk whose fsync takes two seconds, with real processes (scenarios.md, "Everywhere"): on a follower it is hardly
noticed, on the leader it makes writes slow; neither causes an election or loses an acknowledged write."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from statistics import median

import pytest

from palisade.client import Client
from tests.support.load import Load, check_record
from tests.support.processes import Cluster, NodeProcess, until

pytestmark = pytest.mark.e2e

FSYNC_S = 2.0
WRITES = 400
AT_ONCE = 16
ELECTION_S = 60.0
"""Elections with such disks, and their duration: raftgroup/test_slow_disks.py."""


class SlowDisks:
    """Three nodes, each of which can get a slow disk while it runs."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        for node in cluster.nodes:
            node.program = ["-m", "tests.support.slow_disk_node", str(self._file(node))]

    def _file(self, node: NodeProcess) -> str:
        return str(node.log_file.with_suffix(".fsync_s"))

    def slow(self, node: NodeProcess) -> None:
        node.log_file.with_suffix(".fsync_s").write_text(str(FSYNC_S))

    def quick(self, node: NodeProcess) -> None:
        node.log_file.with_suffix(".fsync_s").unlink()


@pytest.fixture
async def disks(new_cluster: Callable[..., Cluster]) -> SlowDisks:
    disks = SlowDisks(new_cluster())
    disks.cluster.start()
    await disks.cluster.ready()
    return disks


async def write_many(client: Client, name: str) -> tuple[float, float]:
    """(writes per second, median seconds of one), `AT_ONCE` at a time."""
    took: list[float] = []

    async def work(worker: int) -> None:
        for number in range(WRITES // AT_ONCE):
            began = time.monotonic()
            await client.put(f"{name}/{worker}/{number}", "x")
            took.append(time.monotonic() - began)

    began = time.monotonic()
    await asyncio.gather(*(work(worker) for worker in range(AT_ONCE)))
    return WRITES / (time.monotonic() - began), median(took)


async def check_all(cluster: Cluster, load: Load) -> None:
    record = await load.stop()
    await check_record(record, load.prefix, cluster.endpoints)
    await cluster.equal_digests()
    assert record.refused == 0
    assert not record.unknown


async def test_slow_disk_of_a_follower_is_hardly_noticed(disks: SlowDisks) -> None:
    cluster = disks.cluster
    leader, (follower, _) = await cluster.leader(), await cluster.followers()
    term = (await leader.status())["term"]
    async with Client([leader.stream]) as client:
        rate, _ = await write_many(client, "before")
        disks.slow(follower)
        slow_rate, slow_median_s = await write_many(client, "while it is slow")
    assert slow_median_s < FSYNC_S / 10
    assert slow_rate > rate / 8, f"{slow_rate:.0f} writes/s after {rate:.0f}: the majority waits for the slow disk"
    async with Load(cluster.endpoints, "follower") as load:
        await load.writes(100)
        disks.quick(follower)
        await load.writes(100)
        await check_all(cluster, load)
    status = await leader.status()
    assert (status["role"], status["term"]) == ("leader", term)


async def test_slow_disk_of_the_leader_makes_writes_slow_and_loses_nothing(disks: SlowDisks) -> None:
    """The leader acknowledges entries of its own log only when they are on its disk, so each write waits for it;
    heartbeats do not."""
    cluster = disks.cluster
    leader = await cluster.leader()
    term = (await leader.status())["term"]
    async with Load(cluster.endpoints, "leader") as load:
        await load.writes(50)
        disks.slow(leader)
        slow_since = time.monotonic()
        for _ in range(3):
            await load.writes_sent_after(time.monotonic())
        assert time.monotonic() - slow_since > FSYNC_S
        disks.quick(leader)
        await load.writes(200)
        await check_all(cluster, load)
    status = await leader.status()
    assert (status["role"], status["term"]) == ("leader", term)


async def test_leadership_transfer_from_a_slow_disk_succeeds(disks: SlowDisks) -> None:
    cluster = disks.cluster
    leader, (successor, _) = await cluster.leader(), await cluster.followers()
    async with Load(cluster.endpoints, "moved") as load:
        await load.writes(50)
        disks.slow(leader)
        async with Client(cluster.endpoints) as client:
            await client.transfer(successor.id)
            await until(lambda: leads(successor), "the successor leading")
            _, median_s = await write_many(client, "moved away")
        assert median_s < FSYNC_S / 10
        disks.quick(leader)
        await check_all(cluster, load)


async def test_follower_with_a_slow_disk_is_enough_for_a_majority(disks: SlowDisks) -> None:
    """The leader dies, and each vote and acknowledgement of one of the two remaining members takes two seconds. The
    other one is elected nearly always, but the slow one may be: votes depend on terms and logs, not on disks."""
    cluster = disks.cluster
    leader, (slow, _) = await cluster.leader(), await cluster.followers()
    async with Load(cluster.endpoints, "majority", timeout_s=30.0) as load:
        await load.writes(50)
        disks.slow(slow)
        leader.kill()
        await cluster.leader(within_s=ELECTION_S)
        await load.writes_sent_after(time.monotonic())
        elected = await cluster.leader()
        term = (await elected.status())["term"]
        for _ in range(3):
            await load.writes_sent_after(time.monotonic())
        assert (await elected.status())["term"] == term
        disks.quick(slow)
        leader.start()
        await cluster.ready()
        await load.writes(100)
        record = await load.stop()
    await check_record(record, load.prefix, cluster.endpoints)
    await cluster.equal_digests()


async def leads(node: NodeProcess) -> bool:
    return (await node.status()).get("role") == "leader"
