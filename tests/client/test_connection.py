"""One connection of the client, without a node or with a stub."""

from __future__ import annotations

import asyncio
import gc
from unittest.mock import Mock

import pytest

from palisade.base.frames import encode
from palisade.client import Client
from palisade.client.connection import ClientConnection
from palisade.raftgroup.errors import OutcomeUnknown, Unavailable
from palisade.wire.stream_frames import PROTOCOL, FrameKind


async def test_connection_that_ends_before_its_greeting_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Issue 16: "Future exception was never retrieved", if an attempt was cancelled between connect and greeting."""
    connection = ClientConnection(asyncio.get_running_loop(), Mock())
    connection.connection_made(Mock())
    connection.connection_lost(None)
    assert connection.closed.result() == "the node closed the connection"
    del connection
    gc.collect()
    assert caplog.messages == []


async def test_greeting_on_a_connection_that_has_ended_is_refused() -> None:
    connection = ClientConnection(asyncio.get_running_loop(), Mock())
    connection.connection_made(Mock())
    connection.connection_lost(ConnectionResetError("reset by peer"))
    with pytest.raises(Unavailable, match="reset by peer"):
        await connection.greet(5.0)


async def node_that_reads_no_more(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As a frozen node: after its greeting its receive buffer fills."""
    await reader.read(1)
    writer.write(encode(FrameKind.WELCOME, {"protocol": PROTOCOL, "member": "n1", "leader": "n1"}))
    await asyncio.Event().wait()


async def test_close_does_not_wait_for_a_node_that_reads_no_more() -> None:
    """It waited until the bytes written before were sent, without a limit."""
    server = await asyncio.start_server(node_that_reads_no_more, "127.0.0.1", 0, limit=1024)
    port = server.sockets[0].getsockname()[1]
    client = Client(f"127.0.0.1:{port}")
    async with asyncio.timeout(10):
        async with client:
            puts = [asyncio.ensure_future(client.put("k", bytes(1_000_000))) for _ in range(16)]
            await asyncio.wait(puts, timeout=0.5)
        ended = await asyncio.gather(*puts, return_exceptions=True)
    assert {type(each) for each in ended} == {OutcomeUnknown}
    server.close()
