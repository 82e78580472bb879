"""One connection to a node: sends the requests of one turn of the event loop in few frames, passes on what arrives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from palisade.base.frames import Encoder, FrameError, FrameParser, is_http
from palisade.base.version import VERSION
from palisade.metastore.command_codec import encode_plain_put
from palisade.metastore.errors import RequestTooLarge
from palisade.metastore.put_series import SERIES_PUTS_MAX, encode_series
from palisade.raftgroup.errors import Unavailable
from palisade.wire.credentials import Credentials, to_hello
from palisade.wire.error_codes import NotInitialized, WrongPort, error_of
from palisade.wire.stream_frames import ITEMS_MAX, PROTOCOL, FrameKind

PING_AFTER_S = 1.0
PONG_S = 0.5
"""A node that needs longer to respond to a ping is reported as silent."""
SILENT_S = 5.0
"""The connection to a node that has sent nothing for this time is closed."""
LAST_BYTES_S = 1.0
HELD_SHARE = 0.8
"""A part of the time that a client announces. A node that refuses a request only after this part has waited for a
leader and found none; nodes refuse after 0.9 of the time."""
SILENT_S_MIN = 2.0
"""The shortest such time, for clients whose deadline is short."""
GATHERED_BYTES_MAX = 256 * 1024
GATHERED_ITEMS_MAX = min(1024, ITEMS_MAX)
CONTENTS_MAX = 2 * min(256, SERIES_PUTS_MAX)
_NO_ID: tuple[str, int] | None = None

OnFrame = Callable[[int, Any], None]


SPEAKS_HTTP = (
    "this is an HTTP address; the client needs the address of a stream. A node that is not a member has no stream: "
    "palisade status, topology and recovery ask it with --at"
)
UNENCODED_BYTES = 64 * 1024
"""A request may exceed the limit by this much in its encoded form: the node counts keys and values."""


def silence_limit_s(timeout_s: float) -> float:
    """How long a node may be silent: half of the deadline, so that the requests can be sent to another node in time."""
    return max(SILENT_S_MIN, min(SILENT_S, timeout_s / 2))


def refusal_in(body: Any) -> tuple[str, Exception | None]:
    """(message, error) of a REFUSED frame; the error is None if the frame has no code."""
    if type(body) is not dict:
        return f"the node refused: {body}", None
    code, reason = body.get("code"), str(body.get("reason"))
    if body.get("waits_for_init") is True:
        return reason, NotInitialized(reason)
    return f"the node refused: {reason}", error_of(code, reason) if type(code) is str else None


class ClientConnection(asyncio.Protocol):
    """`closed` is done when the connection has ended; its result is the reason."""

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
        self._limits: dict[str, int] | None = None
        self._series_number, self._series_id = 0, _NO_ID
        self._next_number = self._next_sequence = -1
        self._flushing = False
        self.closed: asyncio.Future[str] = loop.create_future()
        self.unanswered_not_executed = False
        """Announced by the node: no request without an answer was or will be executed over this connection."""
        self.last_heard = self._since = loop.time()
        self._held_s, self._silent_s = float("inf"), SILENT_S
        self._pinged_at: float | None = None

    async def greet(self, timeout_s: float, shown: Credentials | None = None, waited_s: float = 0.0) -> dict[str, Any]:
        """The node's WELCOME. `timeout_s`: the deadline of this client's requests. `waited_s`: how long the oldest of
        them has waited for a connection.

        Raises Unavailable if the node refuses, AuthorizationError if it refuses the credentials `shown`."""
        self._held_s, self._silent_s = HELD_SHARE * (timeout_s - waited_s), silence_limit_s(timeout_s)
        hello: dict[str, Any] = {
            "protocol": PROTOCOL,
            "client": f"palisade-python/{VERSION}",
            "timeout_ms": int(timeout_s * 1000),
        }
        hello |= {"follows": True, **to_hello(shown)}
        if waited_s > 0:
            hello["waited_ms"] = int(waited_s * 1000)
        self.send(FrameKind.HELLO, hello)
        return await self._welcome

    def has_waited_for_leader(self, tried_at: float, now: float) -> bool:
        """Whether the node refuses a request only now, after it has waited for a leader for as long as it may."""
        return now - max(tried_at, self._since) >= self._held_s

    def is_dead(self, now: float, *, awaited: bool) -> bool:
        """Whether the node has sent nothing for too long (`silence_limit_s`) although something is `awaited` from it
        and it was pinged. Pings it after `PING_AFTER_S`."""
        if not awaited or now - self.last_heard < PING_AFTER_S:
            self._pinged_at = None
        elif self._pinged_at is None or self._pinged_at < self.last_heard:
            self._pinged_at = now
            self.send(FrameKind.CALL, [0, "ping", []])
        else:
            return now - self._pinged_at > self._silent_s - PING_AFTER_S
        return False

    def silence(self, now: float) -> str | None:
        """What is wrong with the node if it has not responded to a ping within `PONG_S`, else None."""
        if self._pinged_at is None or self._pinged_at < self.last_heard or now - self._pinged_at < PONG_S:
            return None
        return f"has sent nothing for {now - self.last_heard:.1f} s"

    @property
    def kept_bytes(self) -> int:
        """Bytes received so far of a frame that is not complete yet."""
        return self._parser.kept_bytes

    # Called by the transport.

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
            self._welcome.exception()  # marks it as retrieved: an attempt cancelled before `greet` does not

    def data_received(self, data: bytes) -> None:
        self.last_heard = self._loop.time()
        try:
            for kind, body in self._parser.feed(data):
                if kind == FrameKind.WELCOME:
                    self._welcomed(body)
                elif kind == FrameKind.REFUSED:
                    self.unanswered_not_executed = type(body) is dict and body.get("unanswered_not_executed") is True
                    self._end(*refusal_in(body))
                    self.abort()
                else:
                    self._on_frame(kind, body)
        except FrameError as error:
            if is_http(error):
                self._end(SPEAKS_HTTP, WrongPort(SPEAKS_HTTP))
            else:
                self._end(f"the node sent an invalid frame: {error}")
            self.abort()

    def _welcomed(self, body: dict[str, Any]) -> None:
        limits = body.get("limits")
        if type(limits) is dict and type(limits.get("request_bytes")) is int:
            self._limits = limits
        if not self._welcome.done():  # else the greeting has timed out
            self._welcome.set_result(body)

    # Sending.

    def refusal_of_size(self, size: int) -> RequestTooLarge | None:
        """The error of a request of `size` bytes; None if the node accepts that size, or has not announced a limit.

        A node closes the connection when a frame exceeds its limit: that would delay every request in flight.
        """
        if self._limits is None or size <= self._limits["request_bytes"] + UNENCODED_BYTES:
            return None
        return RequestTooLarge(
            f"the request has {size} bytes; the cluster accepts {self._limits['request_bytes']} per request and "
            f"{self._limits.get('value_bytes')} per value. It was not sent; split it"
        )

    def gather(self, kind: FrameKind, number: int, content: Any, size: int) -> None:
        """Send a request (WRITES, READS) in one frame with the others of this turn of the event loop."""
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
        """As `gather`, for a plain put: consecutive ones are sent as a series."""
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
        """Finish the series; the next put begins a new one."""
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
        """Data that the node does not read is buffered in the transport; the session bounds its size."""
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

    async def end(self) -> None:
        """Close, and wait until what was written is sent, at most `LAST_BYTES_S`: a frozen node does not read."""
        self.close()
        await asyncio.wait([self.closed], timeout=LAST_BYTES_S)
        self.abort()

    def abort(self, reason: str = "") -> None:
        """`reason`: of its end, for messages."""
        if reason:
            self._end(reason)
        if self._transport is not None:
            self._transport.abort()
