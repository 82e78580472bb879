"""A full disk and too few file descriptors: a clear error or a wait, and no acknowledged write is lost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
from collections.abc import Callable
from functools import partial

import pytest

from palisade.client import Client, OutcomeUnknown, Unavailable
from tests.support.full_disk import little_room
from tests.support.load import Load, check_record
from tests.support.processes import Cluster, NodeProcess, until

pytestmark = pytest.mark.e2e

FAILED = 1
ROOM_BYTES = 8 * 1024 * 1024
VALUE_BYTES = 256 * 1024
FILES_MAX = 96
LOG_BYTES_MAX = 256 * 1024


def few_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES_MAX, FILES_MAX))


@pytest.mark.parametrize("role", ["follower", "leader"])
async def test_node_with_a_full_disk_stops_and_continues_once_there_is_room(
    new_cluster: Callable[..., Cluster], role: str
) -> None:
    cluster = new_cluster()
    victim = cluster.nodes[0]
    victim.before_exec = partial(little_room, ROOM_BYTES)
    cluster.start()
    await cluster.ready()
    async with Client(cluster.endpoints, timeout_s=20) as client, Load(cluster.endpoints, role, timeout_s=20) as load:
        await client.transfer("n1" if role == "leader" else "n2")
        await fill(client, victim)
        assert await victim.ended() == FAILED
        last = victim.log().strip().splitlines()[-1]
        assert last.startswith("palisade node: "), last
        assert "full" in last, last
        await load.writes(100)
        victim.before_exec = None
        victim.start()
        await cluster.ready()
        record = await load.stop()
    await check_record(record, load.prefix, cluster.endpoints)
    await cluster.equal_digests()


async def fill(client: Client, victim: NodeProcess) -> None:
    """Until the node refuses."""
    for number in range(10 * ROOM_BYTES // VALUE_BYTES):
        if not victim.running:
            return
        with contextlib.suppress(OutcomeUnknown, Unavailable):
            await client.put(f"filling/{number}", os.urandom(VALUE_BYTES))
    await until(lambda: not victim.running, "the disk being full")


async def test_node_without_free_file_descriptors_serves_open_connections(
    new_cluster: Callable[..., Cluster],
) -> None:
    cluster = new_cluster(size=1)
    node = cluster.nodes[0]
    node.before_exec = few_files
    cluster.start()
    await cluster.ready()
    host, _, port = node.http.rpartition(":")
    async with Client([node.stream]) as client:
        await client.put("before", "x")
        with contextlib.ExitStack() as crowd:
            for _ in range(2 * FILES_MAX):
                crowd.enter_context(socket.create_connection((host, int(port)), timeout=5))
            for number in range(50):
                await client.put("during", str(number))
                await asyncio.sleep(0)
            await node.logged(f"as many as its limit of {FILES_MAX} open files allows")
            refused = await until(lambda: node.put("during", "more"), "an answer to one more")
            assert (refused["http_status"], refused["code"]) == (503, "too-many-connections")
            assert "ulimit -n" in refused["detail"]
        await cluster.ready()
        found = await client.get("during")
    assert found is not None
    assert found.version == 50
    assert len(node.log()) < LOG_BYTES_MAX, "the log is flooded"
    assert await node.stop() == 0
