"""A connection that carries messages: a port, to which tests pass a failing network, and its TCP implementation."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol, cast

from palisade.base.address import Address
from palisade.base.frames import Encoder, FrameError, FrameParser, is_http
from palisade.base.wrong_port import COPY_ADDRESS
from palisade.journal.errors import NotJournalPort
from palisade.journal.messages import JournalMessageKind, refusal_of

WAITING_BYTES_MAX = 1 << 20
"""Maximum size of the messages that wait to be received; beyond it, the connection is not read."""
DIAL_S = 1.0


HTTP_HERE = f"this is an HTTP address, and the client speaks the protocol of a journal: {COPY_ADDRESS}"
Misdirected = Callable[[bytes], bytes | None]
"""Called with the first bytes of a connection. Returns the answer to a client of another protocol, whose connection is
then closed; else None."""
AtOnce = Callable[[int, Any], bool]
"""Called with a message in the turn in which it arrives. Returns False if `receive` has to return it."""


class Channel(Protocol):
    """Messages arrive in order, or the connection ends."""

    def send(self, kind: int, body: Any) -> None:
        """Queue a message; it is dropped if the connection has ended."""

    async def drain(self) -> None:
        """Wait while too much is queued."""

    async def receive(self, at_once: AtOnce | None = None) -> tuple[int, Any] | None:
        """The next message that `at_once` does not take; None once the connection has ended. Raises what `at_once`
        raises."""

    def close(self) -> None: ...


class Inbox:
    """The messages that have arrived. A message that is handled at once costs no switch of tasks."""

    __slots__ = ("_arrived", "_at_once", "_ended", "_waiter")

    def __init__(self) -> None:
        self._arrived: deque[tuple[int, Any]] = deque()
        self._ended = False
        self._at_once: AtOnce | None = None
        self._waiter: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        """Messages that wait to be received."""
        return len(self._arrived)

    def put(self, messages: Iterable[tuple[int, Any]]) -> None:
        for message in messages:
            if self._at_once is not None:
                try:
                    if self._at_once(*message):
                        continue
                except Exception as error:
                    self._wake(error)
                    continue
            self._arrived.append(message)
            self._wake()

    def end(self) -> None:
        """Call when nothing else will arrive."""
        self._ended = True
        self._wake()

    def _wake(self, error: Exception | None = None) -> None:
        self._at_once = None
        if self._waiter is None or self._waiter.done():
            return
        if error is not None:
            self._waiter.set_exception(error)
        else:
            self._waiter.set_result(None)

    async def receive(self, at_once: AtOnce | None = None) -> tuple[int, Any] | None:
        while True:
            while self._arrived:
                message = self._arrived.popleft()
                if at_once is None or not at_once(*message):
                    return message
            if self._ended:
                return None
            self._at_once = at_once
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._at_once = self._waiter = None


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


class TcpChannel(asyncio.Protocol):
    """`connected` is called with it once the connection is there. An answer in HTTP arrives as REFUSED."""

    def __init__(
        self, connected: Callable[[TcpChannel], object] = lambda _channel: None, misdirected: Misdirected | None = None
    ) -> None:
        self._connected = connected
        self._misdirected = misdirected
        self._encode = Encoder().encode
        self._parser = FrameParser()
        self._inbox = Inbox()
        self._transport: asyncio.Transport | None = None
        self._ended = False
        self._waiting_bytes = 0
        self._writable = asyncio.Event()
        self._writable.set()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # the class of uvloop is not a subclass
        self._connected(self)

    def data_received(self, data: bytes) -> None:
        if self._misdirected is not None:
            answer, self._misdirected = self._misdirected(data), None
            if answer is not None and self._transport is not None:
                self._transport.write(answer)
                self.close()
                return
        try:
            self._inbox.put(self._parser.feed(data))
        except FrameError as error:
            if is_http(error):
                self._inbox.put([(JournalMessageKind.REFUSED, refusal_of(NotJournalPort(HTTP_HERE)).body())])
            self.close()
            return
        if self._inbox:
            self._waiting_bytes += len(data)
            if self._waiting_bytes > WAITING_BYTES_MAX and self._transport is not None:
                self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._writable.set()
        self._inbox.end()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # Called by the owner of the channel.

    def send(self, kind: int, body: Any) -> None:
        if not self._ended and self._transport is not None:
            self._transport.write(self._encode(kind, body))

    async def drain(self) -> None:
        await self._writable.wait()

    async def receive(self, at_once: AtOnce | None = None) -> tuple[int, Any] | None:
        if self._waiting_bytes and len(self._inbox) <= 1 and not self._ended and self._transport is not None:
            self._waiting_bytes = 0
            self._transport.resume_reading()
        return await self._inbox.receive(at_once)

    def close(self) -> None:
        """Close once the queued messages are sent."""
        if self._transport is not None and not self._ended:
            self._ended = True
            self._transport.close()
            self._inbox.end()


class TcpNetwork:
    async def dial(self, address: str) -> TcpChannel:
        at = Address.parse(address)
        async with asyncio.timeout(DIAL_S):
            _, channel = await asyncio.get_running_loop().create_connection(TcpChannel, at.host, at.port)
        return channel
