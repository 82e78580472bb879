"""A connection that carries messages: a port, so that tests can hand in a network that fails, and TCP."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from palisade.base.address import Address
from palisade.base.frames import Encoder, FrameError, FrameParser

READ_BYTES = 256 << 10
DIAL_S = 1.0


class Channel(Protocol):
    """Messages arrive in order, or the connection ends."""

    def send(self, kind: int, body: Any) -> None:
        """Queued; dropped if the connection has ended."""

    async def drain(self) -> None:
        """Wait while too much is queued."""

    async def receive(self) -> tuple[int, Any] | None:
        """The next message; None once the connection has ended."""

    def close(self) -> None: ...


class Network(Protocol):
    async def dial(self, address: str) -> Channel:
        """Raises OSError, TimeoutError."""


class Silence:
    """Closes a channel on which nothing arrives for `limit_s`; a timer for each message would cost more."""

    CHECKS = 4

    def __init__(self, channel: Channel, limit_s: float) -> None:
        self._channel = channel
        self._limit_s = limit_s
        self._loop = asyncio.get_running_loop()
        self._last = self._loop.time()

    def heard(self) -> None:
        self._last = self._loop.time()

    async def watch(self, tick: Callable[[], None] = lambda: None) -> None:
        """`tick` is called several times within the limit."""
        while self._loop.time() - self._last <= self._limit_s:
            await asyncio.sleep(self._limit_s / self.CHECKS)
            tick()
        self._channel.close()


class TcpChannel:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._encode = Encoder().encode
        self._parser = FrameParser()
        self._arrived: deque[tuple[int, Any]] = deque()

    def send(self, kind: int, body: Any) -> None:
        if not self._writer.is_closing():
            self._writer.write(self._encode(kind, body))

    async def drain(self) -> None:
        with contextlib.suppress(OSError):
            await self._writer.drain()

    async def receive(self) -> tuple[int, Any] | None:
        while not self._arrived:
            try:
                data = await self._reader.read(READ_BYTES)
                self._arrived.extend(self._parser.feed(data))
            except (OSError, FrameError):
                data = b""
            if not data:
                self.close()
                return None
        return self._arrived.popleft()

    def close(self) -> None:
        self._writer.close()


class TcpNetwork:
    async def dial(self, address: str) -> TcpChannel:
        at = Address.parse(address)
        async with asyncio.timeout(DIAL_S):
            reader, writer = await asyncio.open_connection(at.host, at.port)
        return TcpChannel(reader, writer)
