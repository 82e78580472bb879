"""Members that are added, moved and removed; starting and stopping."""

from __future__ import annotations

import asyncio
import errno
import logging
import random
import socket
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from palisade.raftgroup.peer_connection import PeerConnection, TransportLimits
from palisade.raftgroup.tcp_transport import CannotListen, TcpPeers
from tests.support.loopback import (
    IGNORE_POLICY_WARNING,
    KIND,
    LOOPBACK,
    QUICK,
    Start,
    address_of,
    connect,
    greeting_of,
)
from tests.support.recorder import PATIENCE_S, Recorder

pytestmark = IGNORE_POLICY_WARNING


async def test_unlisted_member_is_disconnected(start: Start) -> None:
    members = [await start(name) for name in ("n1", "n2", "n3")]
    await connect(*members)
    one = members[0]
    one.peers.send("n3", KIND, "last words")
    one.peers.set_members({"n1": one.peers.address, "n2": members[1].peers.address})
    assert one.peers.connected() == {"n2"}
    await one.recorder.until(lambda: one.recorder.disconnected == ["n3"])
    await members[2].recorder.until(lambda: members[2].recorder.messages == [("n1", KIND, "last words")])


async def test_changed_address_is_dialled(start: Start) -> None:
    one, two = await start("n1"), await start("n2")
    await connect(one, two)
    elsewhere = await start("n2")
    one.peers.set_members({"n2": elsewhere.peers.address})
    await one.recorder.until(lambda: one.recorder.connected == ["n2", "n2"])
    await one.recorder.until(lambda: one.peers.send("n2", KIND, "moved"))
    await elsewhere.recorder.until(lambda: bool(elsewhere.recorder.messages))
    assert two.recorder.messages == []


@pytest.mark.parametrize("address", ["", "nowhere", "127.0.0.1:", "127.0.0.1:99999", ":1", "a" * 300 + ":7501"])
async def test_invalid_address_is_logged_and_retried(
    start: Start, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = await start("n1"), await start("n2")
    one.peers.set_members({"n3": address, "n2": two.peers.address})
    await one.recorder.until(lambda: one.peers.connected() == {"n2"})
    await one.recorder.until(lambda: "no connection to n3" in caplog.text)


async def test_unreachable_member_is_logged_once(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    one = await start("n1")
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        one.peers.set_members({"n2": address_of(sock)})
        loop = asyncio.get_running_loop()
        until = loop.time() + 0.5
        await one.recorder.until(lambda: loop.time() > until)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert caplog.messages[0].endswith("retrying: connection refused")


def test_reason_of_a_broken_connection_has_no_number_of_the_system() -> None:
    """A node that resumed wrote "retrying: [Errno 32] Broken pipe" (issue 16)."""
    hub: Any = SimpleNamespace(limits=TransportLimits(), now=float, lost=lambda _: None)
    connection = PeerConnection(hub, 1)
    connection.connection_lost(BrokenPipeError(errno.EPIPE, "Broken pipe"))
    assert connection.end_reason == "broken pipe"


async def test_port_in_use_is_named_with_the_remedy(start: Start) -> None:
    one = await start("n1")
    peers = TcpPeers(one.peers.address, random.Random(1))
    with pytest.raises(CannotListen, match=rf"port {one.port} .* is in use: stop the process .* another peer port"):
        await peers.start(Recorder("n2"))
    await peers.close()


async def test_foreign_address_cannot_be_listened_on() -> None:
    peers = TcpPeers("203.0.113.7:7501", random.Random(1))
    reason = r"203.0.113.7 can't be used \(cannot assign requested address\): correct this node's peer address$"
    with pytest.raises(CannotListen, match=reason):
        await peers.start(Recorder("n1"))


async def test_close_sends_the_last_messages_and_ends_callbacks(start: Start) -> None:
    one, two = await start("n1"), await start("n2")
    await connect(one, two)
    two.peers.send("n1", KIND, "to one who closes")
    one.peers.send("n2", KIND, "farewell")
    await one.peers.close()
    heard = list(one.recorder.messages)
    await two.recorder.until(lambda: two.recorder.messages == [("n1", KIND, "farewell")])
    await two.recorder.until(lambda: two.recorder.disconnected == ["n1"])
    assert one.recorder.disconnected == []
    assert one.recorder.messages == heard
    assert one.peers.send("n2", KIND, "too late") is False
    await one.peers.close()


async def test_close_does_not_wait_for_a_member_that_never_reads(start: Start) -> None:
    one = await start("n1", limits=TransportLimits(close_timeout_s=0.1))
    halt = asyncio.Event()

    async def deaf(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting_of("n2"))
        await halt.wait()
        writer.close()

    server = await asyncio.start_server(deaf, "127.0.0.1", 0, limit=1000)
    one.peers.set_members({"n2": address_of(server.sockets[0])})
    await one.recorder.until(lambda: bool(one.recorder.connected))
    one.peers.send("n2", KIND, b"x" * 30_000_000)
    async with asyncio.timeout(PATIENCE_S):
        await one.peers.close()
    halt.set()
    server.close()


async def test_dialling_member_is_dialled_back_at_once(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """A returning member could not be answered for up to two seconds, and an election had to wait for that."""
    two = await start("n2")
    address = two.peers.address
    await two.peers.close()
    one = await start("n1", limits=replace(QUICK, redial_min_s=3 * PATIENCE_S, redial_max_s=3 * PATIENCE_S))
    one.peers.set_members({"n2": address})
    await one.recorder.until(lambda: "no connection to n2" in caplog.text)
    again = await start("n2", listen=address)
    again.peers.set_members({"n1": one.peers.address})
    await one.recorder.until(lambda: one.peers.connected() == {"n2"})


async def test_close_during_dialling_ends(start: Start) -> None:
    """uvloop does not report the loss of a connection abandoned while it is established: close waited forever."""
    two = await start("n2")
    for turns in range(12):
        one = TcpPeers(LOOPBACK, random.Random(1), limits=QUICK)
        await one.start(Recorder("n1"))
        one.set_members({"n2": two.peers.address})
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE_S / 4):
            await one.close()
