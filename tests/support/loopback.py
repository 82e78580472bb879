"""Members on loopback sockets, and foreign programs that connect to their ports."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from palisade.base.frames import FrameParser, encode
from palisade.raftgroup.handshake import HELLO, hello
from palisade.raftgroup.peer_connection import TransportLimits
from palisade.raftgroup.tcp_transport import TcpPeers
from tests.support.recorder import PATIENCE_S, Recorder

KIND = 20
LOOPBACK = "127.0.0.1:0"
QUICK = TransportLimits(redial_min_s=0.01, redial_max_s=0.05)
HASTY = TransportLimits(
    handshake_timeout_s=0.3, idle_timeout_s=0.4, ping_interval_s=0.1, redial_min_s=0.01, redial_max_s=0.05
)
IGNORE_POLICY_WARNING = pytest.mark.filterwarnings("ignore:Overriding the .event_loop_policy. fixture")


class Member:
    """A transport and the calls of its receiver."""

    def __init__(self, recorder: Recorder, peers: TcpPeers) -> None:
        self.recorder = recorder
        self.peers = peers

    @property
    def id(self) -> str:
        return self.recorder.member

    @property
    def port(self) -> int:
        return int(self.peers.address.rpartition(":")[2])


Start = Callable[..., Awaitable[Member]]


def address_of(sock: Any) -> str:
    host, port = sock.getsockname()
    return f"{host}:{port}"


def introduce(*members: Member) -> None:
    addresses = {member.id: member.peers.address for member in members}
    for member in members:
        member.peers.set_members(addresses)


async def connect(*members: Member) -> None:
    introduce(*members)
    everybody = {member.id for member in members}
    for member in members:
        others = everybody - {member.id}
        await member.recorder.until(lambda member=member, others=others: member.peers.connected() == others)


class Stranger:
    """A raw socket connected to a member's port."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def frames_until_closed(self) -> list[tuple[int, Any]]:
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionError):
                return FrameParser().feed(await self.reader.read())
            return []

    async def end(self) -> None:
        """Wait until the other side closes it, whatever it sends before."""
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionError):
                await self.reader.read()

    async def next_frame(self) -> tuple[int, Any]:
        async with asyncio.timeout(PATIENCE_S):
            head = await self.reader.readexactly(4)
            rest = await self.reader.readexactly(struct.unpack(">I", head)[0])
        (frame,) = FrameParser().feed(head + rest)
        return frame


@contextlib.asynccontextmanager
async def stranger_at(member: Member) -> AsyncIterator[Stranger]:
    reader, writer = await asyncio.open_connection("127.0.0.1", member.port)
    try:
        yield Stranger(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def greeting_of(member: str, cluster: str = "c1") -> bytes:
    return encode(HELLO, hello({"cluster": cluster, "member": member, "incarnation": "i1"}))
