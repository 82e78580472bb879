"""Ten thousand silent connections: the node continues to serve, and its memory stays bounded (scenarios.md,
"Everywhere"). Its behaviour at the limit of connections is tested in test_disk.py and base/test_connection_limit.py."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from palisade.base.frames import Encoder
from palisade.client import Client
from palisade.wire.stream_frames import PROTOCOL, FrameKind
from tests.support.hostile import idle_connections, open_files, private_bytes, raise_file_limit
from tests.support.load import Load, check_record
from tests.support.processes import Cluster, until

pytestmark = pytest.mark.e2e

IDLE = 10_000
OWN_FILES = 1_000
KIB = 1024
MIB = 1024 * KIB
HELLO = Encoder().encode(FrameKind.HELLO, {"protocol": PROTOCOL, "client": "idle", "timeout_ms": 1000})
"""A connection without HELLO is closed after ten seconds."""


@pytest.mark.parametrize("port", ["http", "stream"])
async def test_ten_thousand_idle_connections_cost_memory_and_nothing_else(
    new_cluster: Callable[..., Cluster], port: str
) -> None:
    number = min(IDLE, raise_file_limit() - OWN_FILES)
    assert number >= IDLE // 2, "this machine's limit of open files is too low for this test (ulimit -Hn 20000)"
    cluster = new_cluster()
    cluster.start()
    await cluster.ready()
    target = await cluster.leader()
    address = {"http": target.http, "stream": target.stream}[port]
    before = private_bytes(target.pid)
    async with Load(cluster.endpoints, os.urandom(4).hex()) as load:
        async with idle_connections(address, number, HELLO if port == "stream" else b""):
            await until(lambda: open_files(target.pid) >= number, f"{number} connections")
            await load.writes(200)
            async with Client([target.stream], follow_leader=False) as client:
                await client.put("in the crowd", port)
            answer = await target.put("in the crowd", "x")
            assert answer is not None
            assert answer["http_status"] == 200
            used = private_bytes(target.pid) - before
            assert used < 32 * MIB + number * 16 * KIB, f"{used / number:.0f} bytes for each connection"
        record = await load.stop()
    await check_record(record, load.prefix, cluster.endpoints)
    assert (await cluster.leader()) is target
    assert all("Traceback" not in node.log() for node in cluster.nodes)
