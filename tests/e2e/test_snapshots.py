"""A node that is behind the log gets a snapshot while clients write, whatever fails meanwhile (issue 2).

The log keeps a few entries only, and the store is large enough that a snapshot of it takes a while.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Iterator

import pytest

from palisade.client import Client
from tests.support.load import Load, check_record
from tests.support.processes import Cluster, NodeProcess, until

pytestmark = pytest.mark.e2e

VALUE_BYTES = 256 * 1024
VALUES = 400
RECEIVED_BYTES = 12 * 1024 * 1024
"""Fewer bytes than the snapshot has, more than one commit of the receiver."""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("large"), log_retention_entries="20")
    yield cluster
    cluster.kill()


@pytest.fixture
async def cluster(large: Cluster) -> AsyncIterator[Cluster]:
    """Three nodes with 100 MiB, created by the first test that uses them, whose log has been compacted."""
    founded = bool(large.nodes[0].log_file.exists())
    large.start()
    await large.ready()
    if not founded:
        async with Client(large.endpoints, timeout_s=30) as client:
            items = ((f"large/{number}", os.urandom(VALUE_BYTES)) for number in range(VALUES))
            await client.put_many(items, outstanding=16)
    await until(lambda: log_is_short(large), "the log without its beginning")
    yield large
    for node in large.nodes[3:]:
        await large.remove(node)


async def log_is_short(cluster: Cluster) -> bool:
    return all([(await node.status())["raft"]["first_index"] > 5 for node in cluster.nodes])


def received_bytes(node: NodeProcess) -> int:
    """Bytes of an incoming snapshot on its disk."""
    return sum(file.stat().st_blocks * 512 for file in node.data_dir.glob("store/incoming/*.mdb"))


def pieces_that_it_began_with(node: NodeProcess) -> list[int]:
    """For each start or resumption of an incoming snapshot, the number of the first piece."""
    return [int(found) for found in re.findall(r"receiving a snapshot: index=\d+ first_piece=(\d+)", node.log())]


async def half_received(node: NodeProcess) -> None:
    await until(lambda: received_bytes(node) > RECEIVED_BYTES, "half a snapshot", within_s=60)
    assert "snapshot installed" not in node.log()


async def check_all(cluster: Cluster, load: Load) -> None:
    await cluster.ready()
    await load.writes(50)
    record = await load.stop()
    await check_record(record, load.prefix, cluster.endpoints)
    await cluster.equal_digests()


def installs(node: NodeProcess) -> int:
    return node.log_file.read_text().count("snapshot installed")


async def test_new_node_gets_a_snapshot_during_load_and_heartbeats_go_on(cluster: Cluster) -> None:
    async with Load(cluster.endpoints, "new") as load:
        leader = await cluster.leader()
        term = (await leader.status())["term"]
        new = cluster.joining("n4", at=leader)
        new.start()
        await new.logged("snapshot installed", within_s=60)
        assert (await leader.status())["term"] == term
        await check_all(cluster, load)
    assert installs(new) == 1


async def test_long_absent_node_gets_one_snapshot(cluster: Cluster) -> None:
    async with Load(cluster.endpoints, "away") as load:
        follower = (await cluster.followers())[0]
        before = installs(follower)
        follower.kill()
        last = (await (await cluster.leader()).status())["raft"]["last_index"]

        async def log_has_gone_on() -> bool:
            return (await (await cluster.leader()).status())["raft"]["first_index"] > last

        await until(log_has_gone_on, "a log that begins later")
        follower.start()
        await follower.logged("snapshot installed", within_s=60)
        await check_all(cluster, load)
    assert installs(follower) == before + 1


async def test_node_killed_during_a_snapshot_resumes_it(cluster: Cluster) -> None:
    async with Load(cluster.endpoints, "killed") as load:
        new = cluster.joining("n5", at=await cluster.leader())
        new.start()
        await half_received(new)
        new.kill()
        await load.writes(50)
        new.start()
        await new.logged("snapshot installed", within_s=60)
        assert pieces_that_it_began_with(new)[0] > 0
        await check_all(cluster, load)
    assert installs(new) == 1


async def test_snapshot_survives_a_kill_of_the_sending_leader(cluster: Cluster) -> None:
    async with Load(cluster.endpoints, "leaderless") as load:
        leader = await cluster.leader()
        new = cluster.joining("n6", at=leader)
        new.start()
        await half_received(new)
        leader.kill()
        await new.logged("snapshot installed", within_s=60)
        leader.start()
        await check_all(cluster, load)
    assert installs(new) == 1
