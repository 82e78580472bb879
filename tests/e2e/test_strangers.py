"""Garbage, incomplete frames, announced gigabytes, slow-loris and idle connections on every port: the nodes continue to
serve, and their memory stays bounded (scenarios.md, "Everywhere"). Larger crowds are in test_crowds.py."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from tests.support.hostile import (
    FRAME_OF_2_GIB,
    idle_connections,
    openings,
    private_bytes,
    raise_file_limit,
    talk,
)
from tests.support.load import Load, check_record
from tests.support.processes import Cluster, NodeProcess

pytestmark = pytest.mark.e2e

IDLE = 1000
MIB = 1024 * 1024
LOG_BYTES_MAX = 512 * 1024
HALF_A_HEAD = b"POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nContent-Le"


@pytest.fixture
async def loaded(cluster: Cluster) -> AsyncIterator[Load]:
    """Writes continue during all of it, on the same ports; afterwards all of them exist, and no node has left or
    failed."""
    pids = [node.pid for node in cluster.nodes]
    leader = await cluster.leader()
    term = (await leader.status())["term"]
    async with Load(cluster.endpoints, os.urandom(4).hex()) as load:
        await load.writes(20)
        yield load
        await load.writes(50)
        record = await load.stop()
    await check_record(record, load.prefix, cluster.endpoints)
    await cluster.equal_digests()
    assert [node.pid for node in cluster.running] == pids
    assert (await cluster.leader()) is leader
    assert (await leader.status())["term"] == term
    assert all(len(node.log()) < LOG_BYTES_MAX for node in cluster.nodes)
    assert all("Traceback" not in node.log() for node in cluster.nodes)


def ports(node: NodeProcess) -> list[str]:
    return [node.http, node.peer, node.stream]


async def test_noise_on_every_port_disturbs_no_client(cluster: Cluster, loaded: Load) -> None:
    target = await cluster.leader()
    before = private_bytes(target.pid)
    for address in ports(target):
        await asyncio.gather(*(talk(address, opening, hang_up=True) for opening in openings(1)))
    assert private_bytes(target.pid) - before < 32 * MIB


async def test_announced_gigabytes_are_not_waited_for(cluster: Cluster, loaded: Load) -> None:
    """A frame of 2 GiB ends its connection at once; a body of 2 GiB is refused before it is read."""
    target = await cluster.leader()
    before = private_bytes(target.pid)
    lies = [FRAME_OF_2_GIB, b"POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nContent-Length: 2147483647\r\n\r\n"]
    for address, lie in ((target.peer, lies[0]), (target.stream, lies[0]), (target.http, lies[1])):
        async with asyncio.timeout(10):
            await asyncio.gather(*(talk(address, lie, hang_up=False) for _ in range(50)))
    assert private_bytes(target.pid) - before < 32 * MIB


async def test_slow_heads_time_out(cluster: Cluster, loaded: Load) -> None:
    """Slow-loris: each connection has sent half a head and sends no more."""
    target = await cluster.leader()
    async with asyncio.timeout(30):
        await asyncio.gather(*(talk(target.http, HALF_A_HEAD, hang_up=False) for _ in range(200)))


async def test_silent_connections_leave_room_for_clients(cluster: Cluster, loaded: Load) -> None:
    """On every port of the leader; new valid requests are answered meanwhile."""
    assert raise_file_limit() > IDLE + 500
    target = await cluster.leader()
    before = private_bytes(target.pid)
    async with AsyncExitStack() as crowd:
        for address in ports(target):
            await crowd.enter_async_context(idle_connections(address, IDLE // 3))
        await loaded.writes(100)
        answer = await target.put("in the crowd", "x")
        assert answer is not None
        assert answer["http_status"] == 200
        assert private_bytes(target.pid) - before < 32 * MIB + IDLE * 32 * 1024
