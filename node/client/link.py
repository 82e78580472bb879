"""One connection to a node: greets, gathers what is sent in one turn of the loop into few frames, hands on frames."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from node.stream.protocol import ITEMS_MAX, PROTOCOL, Kind
from node.version import VERSION
from raftgroup.errors import Unavailable
from raftgroup.frames import Encoder, FrameError, FrameParser

GATHERED_BYTES_MAX = 256 * 1024
GATHERED_ITEMS_MAX = min(1024, ITEMS_MAX)

OnFrame = Callable[[int, Any], None]


class Link(asyncio.Protocol):
    """`closed` is done when the connection has ended, with the reason as its result."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_frame: OnFrame) -> None:
        self._loop = loop
        self._on_frame = on_frame
        self._parser = FrameParser()
        self._encode = Encoder().encode
        self._transport: asyncio.Transport | None = None
        self._welcome: asyncio.Future[dict[str, Any]] = loop.create_future()
        self._gathered: dict[Kind, list[Any]] = {Kind.WRITES: [], Kind.READS: []}
        self._gathered_bytes = 0
        self._flushing = False
        self.closed: asyncio.Future[str] = loop.create_future()
        self.last_heard = loop.time()

    async def greet(self, timeout_s: float) -> dict[str, Any]:
        """The node's WELCOME. `timeout_s`: how long this client waits. Raises Unavailable when it refuses."""
        hello = {"protocol": PROTOCOL, "client": f"palisade-python/{VERSION}", "timeout_ms": int(timeout_s * 1000)}
        hello["follows"] = True
        self.send(Kind.HELLO, hello)
        return await self._welcome

    # What the transport tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._end(str(exc) if exc else "the node closed the connection")

    def _end(self, reason: str) -> None:
        if not self.closed.done():
            self.closed.set_result(reason)
        if not self._welcome.done():
            self._welcome.set_exception(Unavailable(reason))

    def data_received(self, data: bytes) -> None:
        self.last_heard = self._loop.time()
        try:
            for kind, body in self._parser.feed(data):
                if kind == Kind.WELCOME and not self._welcome.done():
                    self._welcome.set_result(body)
                elif kind == Kind.REFUSED:
                    self._end(f"the node refused: {body.get('reason') if type(body) is dict else body}")
                    self.abort()
                else:
                    self._on_frame(kind, body)
        except FrameError as error:
            self._end(f"the node sent what is not of the protocol: {error}")
            self.abort()

    # Sending.

    def gather(self, kind: Kind, number: int, content: Any, size: int) -> None:
        """Send one of many (WRITES, READS) with the others of this turn of the loop."""
        items = self._gathered[kind]
        if self._gathered_bytes + size > GATHERED_BYTES_MAX or len(items) >= 2 * GATHERED_ITEMS_MAX:
            self._flush()
            items = self._gathered[kind]
        items += (number, content)
        self._gathered_bytes += size
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """What a node does not read waits in the transport; the session bounds how much that can be."""
        self._flushing = False
        self._gathered_bytes = 0
        for kind, items in self._gathered.items():
            if items:
                self._gathered[kind] = []
                self.send(kind, items)

    def send(self, kind: Kind, body: Any) -> None:
        if self._transport is not None:
            self._transport.write(self._encode(kind, body))

    def close(self) -> None:
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
