"""The fast path of the HTTP server: handles the hot requests itself, and passes every other connection to aiohttp.

Hot are a plain `POST` to a unary /v3 path, a plain `PUT` of one key to /v1/kv and a plain `GET` of one key from
/v1/fenced. From its first other request on, aiohttp handles a connection; it has the same paths with the same
responses. A hot request costs a fifth of one through aiohttp's request and response objects. Authorization changes
nothing of this: `AuthenticatedClient` identifies the caller first, once for each token of a connection.

Bounds, whatever a client sends: one request of a connection is handled at a time; no more than the largest request is
kept of it; a head or body that does not arrive in time ends the connection (slow-loris).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from palisade.api.http.authorization_header import AuthenticatedClient, HttpCallers, run_if_permitted
from palisade.api.http.connection_state import ANSWERED, BEGUN, TRANSITIONS, HttpEvent, HttpState
from palisade.api.http.overload_reply import OverloadReply
from palisade.api.http.problems import late_body
from palisade.api.http.request_head import (
    CRLF,
    END_OF_HEAD,
    POST,
    Hot,
    KeyPaths,
    RequestPlan,
    make_head,
    make_plan,
)
from palisade.base.connection_limit import Admission, ConnectionLimit
from palisade.base.log_rate_limit import LogLimit
from palisade.base.metrics import Metrics
from palisade.base.wrong_port import HTTP2_PREFACE, advice, protocol_of, refusal
from palisade.service.authorization.callers import Access
from palisade.service.callers import UNRESTRICTED

log = logging.getLogger(__name__)

HEAD_BYTES_MAX = 16 * 1024
KEPT_HEADS_MAX = 1024
QUEUED_BYTES_MAX = 64 * 1024
SWEEP_S = 0.5
BLANK = 0x20
"""Every request begins with a byte of at least this value."""
AUTHORIZATION = b"\r\nAuthorization: "
PLAIN_VALUE = re.compile(rb"[ -~\t]*")


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Times in seconds. `body_bytes_max` is of a request's body as it is sent."""

    body_bytes_max: int = 3 * 1024 * 1024 + 64 * 1024
    head_timeout_s: float = 10.0
    body_timeout_s: float = 30.0
    idle_timeout_s: float = 600.0


class FastPathServer:
    """What the connections share. `fallback` makes a protocol of aiohttp."""

    def __init__(
        self,
        unary: Mapping[str, Hot],
        fallback: Callable[[], asyncio.Protocol],
        limits: HttpLimits,
        metrics: Metrics,
        room: ConnectionLimit,
        keys: Iterable[Hot] = (),
        callers: HttpCallers | None = None,
        ports: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`unary`: POSTs, by their path. `keys`: requests for one key. `callers` None: every client may do
        everything. `ports`: name -> 'host:port' of this node, for clients of another one."""
        self.ports = ports
        self.misdirected = LogLimit()
        self.callers = callers
        self._keys = KeyPaths(keys)
        self._unary = {path.encode(): call for path, call in unary.items()}
        self._plans: dict[tuple[bytes, bytes], RequestPlan] = {}
        self.fallback = fallback
        self.limits = limits
        self.metrics = metrics
        self.room = room
        self.connections: set[HttpConnection] = set()
        self.busy = 0
        self.closing = False
        self._calm = asyncio.Event()
        self._by_transport: dict[Any, HttpConnection] = {}
        self._heads: dict[tuple[int, bool], bytes] = {}
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises OSError if the port is not available."""
        self._loop = asyncio.get_running_loop()
        self._server = await self._loop.create_server(lambda: HttpConnection(self), host, port, backlog=1024)
        self._sweep()

    @property
    def port(self) -> int:
        sockets = self._server.sockets if self._server else ()
        return int(sockets[0].getsockname()[1]) if sockets else 0

    async def close(self, patience_s: float) -> None:
        """Stop listening, and end every connection once its request is answered; aiohttp's end with its server."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._server is not None:
            self._server.close()
        self.closing = True
        for connection in list(self.connections):
            connection.end_soon()
        if self.busy:
            with suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self._calm.wait()

    def answered(self, status: int, *, problem: bool) -> bytes:
        """A request has ended. Returns everything before the length of its response."""
        self.metrics.answered(status)
        self.busy -= 1
        if self.closing and not self.busy:
            self._calm.set()
        head = self._heads.get((status, problem))
        if head is None:
            head = make_head(status, b"application/problem+json" if problem else b"application/json")
            self._heads[status, problem] = head
        return head

    def abort(self) -> None:
        for connection in list(self.connections):
            connection.abort()

    def now(self) -> float:
        return self._loop.time()

    def plan(self, line: bytes, headers: bytes) -> RequestPlan | None:
        """`headers` without Authorization. None for a request that is not hot. Heads are parsed once."""
        if not line.startswith(POST):
            return self._keys.plan(line, headers)
        plan = self._plans.get((line, headers))
        if plan is None:
            plan = make_plan(line, headers, self._unary)
            if plan is not None:
                if len(self._plans) >= KEPT_HEADS_MAX:
                    self._plans.clear()
                self._plans[line, headers] = plan
        return plan

    def handling(self, transport: Any) -> None:
        """aiohttp has read a whole head from this connection, and begins to handle it."""
        connection = self._by_transport.get(transport)
        if connection is not None:
            connection.moved(HttpEvent.REQUEST)

    def handled(self, transport: Any) -> None:
        """aiohttp waits for the next request of this connection."""
        connection = self._by_transport.get(transport)
        if connection is not None:
            connection.moved(HttpEvent.ANSWERED)

    def handed_over(self, transport: Any, connection: HttpConnection) -> None:
        self._by_transport[transport] = connection

    def forget(self, transport: Any, connection: HttpConnection) -> None:
        self.connections.discard(connection)
        self._by_transport.pop(transport, None)

    def _sweep(self) -> None:
        now = self.now()
        for connection in list(self.connections):
            connection.check_time(now)
        self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)


class LastHeaders:
    """The headers of the last request of a connection, divided into those without Authorization and its value.

    Clients repeat their headers, and then they are not divided again. Heads that are cached for all connections thus
    contain no secrets, and clients with different credentials share them. Blocks of headers begin and end with CRLF.
    """

    __slots__ = ("_divided", "_whole")

    def __init__(self) -> None:
        self._whole = b""
        self._divided: tuple[bytes, bytes | None] = b"", None

    def divide(self, whole: bytes, token: bytes | None) -> tuple[bytes, bytes | None]:
        """(the headers without Authorization, if that is written in its usual form; its value or None).

        `token`: credentials that were checked before and may be kept; others are not kept.
        """
        if whole == self._whole:
            return self._divided
        plain, value = without_authorization(whole, token)
        if value is None or value is token:
            self._whole, self._divided = whole, (plain, value)
        return plain, value


def without_authorization(headers: bytes, token: bytes | None) -> tuple[bytes, bytes | None]:
    at = headers.find(AUTHORIZATION)
    if at < 0:
        return headers, None
    end = headers.find(CRLF, at + 2)
    value = headers[at + len(AUTHORIZATION) : end]
    if value == token:
        value = token
    elif PLAIN_VALUE.fullmatch(value) is None:
        return headers, None
    return headers[:at] + headers[end:], value


class HttpConnection(asyncio.Protocol):
    """One client. `_since`: when its state began. `_paused`: the client does not read its answers."""

    __slots__ = (
        "_buffer", "_client", "_delegate", "_headers", "_lacking", "_paused", "_server", "_since", "_so_far", "_state",
        "_transport", "_v1",
    )  # fmt: skip

    def __init__(self, server: FastPathServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._client: AuthenticatedClient | None = None
        """None: authorization is off."""
        self._delegate: asyncio.Protocol | None = None
        self._buffer = b""
        self._headers = LastHeaders()
        self._so_far = bytearray()
        """Of a request whose body still lacks `_lacking` bytes. It grows in place, so a body in many pieces is
        not copied, and its head not parsed, again for each piece."""
        self._lacking = 0
        self._state, self._since = HttpState.READY, 0.0
        self._v1 = False
        self._paused = False

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._since = now = self._server.now()
        if self._server.callers is not None:
            self._client = self._server.callers.client(transport)
        self._server.connections.add(self)
        self._server.metrics.http_connections += 1
        welcome = self._server.room.admit(now)
        if welcome is Admission.CLOSE:
            self._transport.abort()
        elif welcome is Admission.REFUSE_WITH_REASON:
            self._delegate = OverloadReply(self._server.room.reason)
            self.moved(HttpEvent.HAND_OVER)
            self._delegate.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.moved(HttpEvent.CLOSE)
        self._server.forget(self._transport, self)
        self._server.metrics.http_connections -= 1
        self._buffer = b""
        self._so_far = bytearray()
        self._transport = None
        if self._delegate is not None:
            self._delegate.connection_lost(exc)

    def eof_received(self) -> bool | None:
        return self._delegate.eof_received() if self._delegate is not None else None

    def pause_writing(self) -> None:
        self._paused = True
        if self._delegate is not None:
            self._delegate.pause_writing()

    def resume_writing(self) -> None:
        self._paused = False
        if self._delegate is not None:
            self._delegate.resume_writing()
        elif self._buffer:
            self._go_on()

    def moved(self, event: HttpEvent) -> None:
        state = TRANSITIONS[self._state][event]
        if state is not self._state:
            self._state, self._since = state, self._server.now()

    def _is_misdirected(self, data: bytes) -> bool:
        """Answer a client of another port or protocol with what to use."""
        what = protocol_of(data)
        if what is None or self._transport is None:
            return False
        text = advice(what, "http", self._server.ports())
        line = self._server.misdirected.admit(f"refused a client: {text}", self._server.now())
        if line is not None:
            log.warning("%s", line)
        self._transport.write(refusal(what, text))
        self._close(self._transport)
        return True

    def data_received(self, data: bytes) -> None:
        if self._delegate is not None:
            self.moved(HttpEvent.PART_OF_HEAD)
            self._delegate.data_received(data)
            return
        if self._lacking > 0:
            self._so_far += data
            self._lacking -= len(data)
            if self._lacking > 0:
                return
            data, self._so_far, self._lacking = bytes(self._so_far), bytearray(), 0
        elif self._buffer:
            data = self._buffer + data
        elif data[0] < BLANK and self._is_misdirected(data):
            return
        if self._state >= HttpState.BUSY or self._paused:
            self._buffer = data
            if len(data) > QUEUED_BYTES_MAX and self._transport is not None:
                self._transport.pause_reading()
            return
        self._consume(data)

    # Requests.

    def _consume(self, data: bytes) -> None:
        end = data.find(END_OF_HEAD)
        if end < 0 and len(data) <= HEAD_BYTES_MAX:
            self._buffer = data
            self.moved(HttpEvent.PART_OF_HEAD)
            return
        client = self._client
        caller = None if client is None else client.caller
        plan, header = None, None
        if end >= 0:
            line_end = data.find(CRLF)
            token = None if caller is None else caller.header
            headers, header = self._headers.divide(data[line_end : end + 2], token)
            plan = self._server.plan(data[:line_end], headers)
        if plan is None or plan.length > self._server.limits.body_bytes_max:
            if not (data.startswith(HTTP2_PREFACE) and self._is_misdirected(data)):
                self._hand_over(data)
            return
        stop = end + 4 + plan.length
        self._v1 = plan.hot.v1
        if len(data) < stop:
            self._so_far, self._lacking = bytearray(data), stop - len(data)
            self.moved(HttpEvent.PART_OF_BODY)
            return
        self._buffer = data[stop:]
        self._state = BEGUN[self._state]
        self._server.busy += 1
        body = data[end + 4 : stop]
        if client is None:
            plan.call(body, self.reply, UNRESTRICTED)
        elif caller is None or not caller.is_of(header):
            client.authenticate_and_run(plan, header, body, self.reply)
        else:
            caller.action = plan
            if plan.hot.access is Access.PER_REQUEST:
                plan.call(body, self.reply, caller)
            else:
                run_if_permitted(caller, plan, body, self.reply)

    def reply(self, status: int, payload: bytes, headers: bytes = b"", /) -> None:
        """Answer the current request; called exactly once for it, in the loop's thread."""
        transport = self._transport
        self._state, self._since = ANSWERED[self._state], self._server.now()
        head = self._server.answered(status, problem=self._v1 and status >= 400)
        if transport is None:
            return
        transport.write(b"%b%d\r\n%b\r\n%b" % (head, len(payload), headers, payload))
        if self._server.closing:
            self._close(transport)
        elif self._buffer:
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        if self._state >= HttpState.BUSY or self._paused or self._transport is None:
            return
        data, self._buffer = self._buffer, b""
        if len(data) > QUEUED_BYTES_MAX:
            self._transport.resume_reading()
        if data:
            self._consume(data)

    def _hand_over(self, data: bytes) -> None:
        """From now on aiohttp handles the connection."""
        if self._transport is None:
            return
        self._buffer = b""
        self.moved(HttpEvent.HAND_OVER)
        self._delegate = self._server.fallback()
        self._server.handed_over(self._transport, self)
        self._delegate.connection_made(self._transport)
        self._delegate.data_received(data)

    # Its end.

    def check_time(self, now: float) -> None:
        limits, for_s = self._server.limits, now - self._since
        if self._state is HttpState.READY:
            if for_s > limits.idle_timeout_s:
                self.end_soon()
        elif self._state is HttpState.BODY:
            if for_s > limits.body_timeout_s:
                self._refuse_late()
        elif self._state in (HttpState.HEAD, HttpState.AIOHTTP_HEAD) and for_s > limits.head_timeout_s:
            self._refuse_late()

    def _refuse_late(self) -> None:
        if self._transport is None:
            return
        if self._delegate is None:
            kind, body = b"text/plain", b"the request did not arrive in time"
            if self._v1 and self._state is HttpState.BODY:
                kind, body = b"application/problem+json", late_body()
            self._transport.write(make_head(408, kind, close=True) + b"%d\r\n\r\n%b" % (len(body), body))
        self._close(self._transport)

    def end_soon(self) -> None:
        """Close it. If a request is in progress, its answer is written first."""
        if self._transport is not None and self._state in (HttpState.READY, HttpState.HEAD, HttpState.BODY):
            self._close(self._transport)

    def _close(self, transport: asyncio.Transport) -> None:
        """Close once the bytes written so far are sent."""
        self.moved(HttpEvent.CLOSE)
        transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
