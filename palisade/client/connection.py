"""One connection to a node: greets, gathers what is sent in one turn of the loop into few frames, hands on frames."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from palisade.base.frames import Encoder, FrameError, FrameParser, FrameTooLarge
from palisade.base.version import VERSION
from palisade.metastore.command_codec import encode_plain_put
from palisade.metastore.put_series import SERIES_PUTS_MAX, encode_series
from palisade.raftgroup.errors import Unavailable
from palisade.wire.credentials import Credentials, to_hello
from palisade.wire.error_codes import error_of
from palisade.wire.stream_frames import ITEMS_MAX, PROTOCOL, FrameKind

GATHERED_BYTES_MAX = 256 * 1024
GATHERED_ITEMS_MAX = min(1024, ITEMS_MAX)
CONTENTS_MAX = 2 * min(256, SERIES_PUTS_MAX)
_NO_ID: tuple[str, int] | None = None

OnFrame = Callable[[int, Any], None]


SPEAKS_HTTP = (
    "the address is one of HTTP, and a stream is needed. A node that is no member has none: palisade status, topology "
    "and recovery ask it with --at"
)


def is_http(error: FrameError) -> bool:
    """Whether the first bytes of an answer, taken for a length, are those of HTTP."""
    return isinstance(error, FrameTooLarge) and error.announced_bytes == int.from_bytes(b"HTTP")


def refusal_in(body: Any) -> tuple[str, Exception | None]:
    """(what is told, the error) of a REFUSED frame; None where it has no code of its own."""
    if type(body) is not dict:
        return f"the node refused: {body}", None
    code, reason = body.get("code"), str(body.get("reason"))
    return f"the node refused: {reason}", error_of(code, reason) if type(code) is str else None


class ClientConnection(asyncio.Protocol):
    """`closed` is done when the connection has ended, with the reason as its result."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_frame: OnFrame) -> None:
        self._loop = loop
        self._on_frame = on_frame
        self._parser = FrameParser()
        self._encode = Encoder().encode
        self._transport: asyncio.Transport | None = None
        self._welcome: asyncio.Future[dict[str, Any]] = loop.create_future()
        self._gathered: dict[FrameKind, list[Any]] = {FrameKind.WRITES: [], FrameKind.READS: []}
        self._gathered_bytes = 0
        self._contents: list[bytes] = []
        self._series_number, self._series_id = 0, _NO_ID
        self._next_number = self._next_sequence = -1
        self._flushing = False
        self.closed: asyncio.Future[str] = loop.create_future()
        self.last_heard = loop.time()

    async def greet(self, timeout_s: float, shown: Credentials | None = None) -> dict[str, Any]:
        """The node's WELCOME. `timeout_s`: how long this client waits. `shown`: who it is.

        Raises Unavailable when the node refuses, AuthorizationError when that is because of who asks."""
        hello: dict[str, Any] = {
            "protocol": PROTOCOL,
            "client": f"palisade-python/{VERSION}",
            "timeout_ms": int(timeout_s * 1000),
        }
        hello |= {"follows": True, **to_hello(shown)}
        self.send(FrameKind.HELLO, hello)
        return await self._welcome

    # What the transport tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._end(str(exc) if exc else "the node closed the connection")

    def _end(self, reason: str, why: Exception | None = None) -> None:
        if not self.closed.done():
            self.closed.set_result(reason)
        if not self._welcome.done():
            self._welcome.set_exception(why or Unavailable(reason))

    def data_received(self, data: bytes) -> None:
        self.last_heard = self._loop.time()
        try:
            for kind, body in self._parser.feed(data):
                if kind == FrameKind.WELCOME:
                    if not self._welcome.done():  # else nobody waits for it any more
                        self._welcome.set_result(body)
                elif kind == FrameKind.REFUSED:
                    self._end(*refusal_in(body))
                    self.abort()
                else:
                    self._on_frame(kind, body)
        except FrameError as error:
            self._end(SPEAKS_HTTP if is_http(error) else f"the node sent what is not of the protocol: {error}")
            self.abort()

    # Sending.

    def gather(self, kind: FrameKind, number: int, content: Any, size: int) -> None:
        """Send one of many (WRITES, READS) with the others of this turn of the loop."""
        if kind is FrameKind.WRITES:
            self._close_series()
        items = self._gathered[kind]
        if self._gathered_bytes + size > GATHERED_BYTES_MAX or len(items) >= 2 * GATHERED_ITEMS_MAX:
            self._flush()
            items = self._gathered[kind]
        items += (number, content)
        self._gathered_bytes += size
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def gather_put(self, number: int, request_id: tuple[str, int] | None, key: bytes, value: bytes) -> None:
        """As `gather`, for a plain put: those that follow each other travel as a series."""
        sequence = request_id[1] if request_id is not None else 0
        if number != self._next_number or sequence != self._next_sequence or len(self._contents) >= CONTENTS_MAX:
            self._close_series()
            self._series_number, self._series_id = number, request_id
        self._contents += (key, value)
        self._next_number = number + 1
        self._next_sequence = sequence + 1 if sequence else 0
        self._gathered_bytes += len(key) + len(value)
        if self._gathered_bytes > GATHERED_BYTES_MAX:
            self._flush()
        elif not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _close_series(self) -> None:
        """The next put begins another one."""
        contents, self._contents = self._contents, []
        self._next_number = -1
        if len(contents) == 2:
            self._gathered[FrameKind.WRITES] += (
                self._series_number,
                encode_plain_put(contents[0], contents[1], self._series_id),
            )
        elif contents:
            self._gathered[FrameKind.WRITES] += (self._series_number, encode_series(self._series_id, contents))

    def _flush(self) -> None:
        """What a node does not read waits in the transport; the session bounds how much that can be."""
        self._flushing = False
        self._gathered_bytes = 0
        self._close_series()
        for kind, items in self._gathered.items():
            if items:
                self._gathered[kind] = []
                self.send(kind, items)

    def send(self, kind: FrameKind, body: Any) -> None:
        if self._transport is not None:
            self._transport.write(self._encode(kind, body))

    def close(self) -> None:
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
