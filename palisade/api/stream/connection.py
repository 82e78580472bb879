"""The node's side of one connection of the stream protocol: its states, requests and results.

All frames of one read are handled together; all results of one turn of the event loop leave in one write. The memory
that a client can occupy is bounded (`IN_FLIGHT_MAX`), and the node does not read from a client that does not read. A
closed connection is part of no reference cycle, since a node collects cycles rarely: its memory is freed at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from palisade.api.stream import frame_checks
from palisade.api.stream.connection_state import TRANSITIONS, StreamEvent, StreamState
from palisade.api.stream.frame_checks import ProtocolError, error_fields, pairs_of
from palisade.api.stream.lease_port import LeaseConnection
from palisade.api.stream.request_timeout import RequestTimeout
from palisade.api.stream.session_auth import SessionAuth, refuse_when_idle
from palisade.api.stream.tasks import Tasks
from palisade.api.stream.watches import StreamWatch, read_watch
from palisade.base.connection_limit import Admission
from palisade.base.frames import FRAME_BYTES_MAX, Encoder, FrameError, FrameParser
from palisade.base.protocol_state import next_state
from palisade.base.wrong_port import ClientProtocol, protocol_of, refusal
from palisade.metastore.command_codec import encode_result
from palisade.metastore.errors import InvalidRequest, RequestTooLarge
from palisade.metastore.requests import Range
from palisade.metastore.results import RangeResult
from palisade.service.callers import UNRESTRICTED, Caller
from palisade.service.range_pages import size_of
from palisade.service.write_checks import CheckedWrite, TooManyPuts, read_range
from palisade.wire.auth_errors import AuthorizationError, Unauthenticated
from palisade.wire.stream_frames import IN_FLIGHT_MAX, ITEMS_MAX, FrameKind

if TYPE_CHECKING:
    from palisade.api.stream.server_port import ServerPort

WATCHES_MAX = 10_000
ANSWER_BYTES_MAX = 8 * 1024 * 1024
"""The result of a range ends here, with `more`; the client requests the rest."""
RESULTS_BYTES_MAX = 1024 * 1024
"""About how many bytes are gathered before they are written, to detect a client that does not read."""


class StreamConnection(asyncio.Protocol):
    """In `_results` and `_failures` request numbers alternate with their results, as in the frames."""

    def __init__(self, server: ServerPort) -> None:
        self._server = server
        self._service = server.service
        self._parser = FrameParser(server.frame_bytes_max, items_max=4 * ITEMS_MAX)
        self._encode = Encoder().encode
        self._transport: asyncio.Transport | None = None
        self._state = StreamState.GREETING
        self._follows = self._flushing = False
        self._timeout = RequestTimeout(self._service.deadline_s)
        self._in_flight = self._results_bytes = 0
        self._reading = True
        self._results: list[Any] = []
        self._failures: list[Any] = []
        self._writable = asyncio.Event()
        self._writable.set()
        self._flushed = asyncio.Event()
        self._watches: dict[int, StreamWatch] = {}
        self._tasks = Tasks(server.loop)
        self._session_auth: SessionAuth | None = None
        """Authorizes every frame; None where authorization is off."""
        self.since = server.now()
        self._lease_connection: LeaseConnection | None = None

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._server.connections[self] = None
        self._service.metrics.stream_connections += 1
        if self._server.room.admit(self.since) is not Admission.ACCEPT:
            self.refuse(self._server.room.reason)

    def connection_lost(self, exc: Exception | None) -> None:
        self._moved(StreamEvent.END)
        self._transport = None
        self._server.connections.pop(self, None)
        self._service.metrics.stream_connections -= 1
        self._writable.set()
        self._tasks.cancel()
        self._timeout.close()
        self._watches.clear()
        connection, self._lease_connection = self._lease_connection, None
        if connection is not None:
            connection.lost()

    def pause_writing(self) -> None:
        self._writable.clear()
        self._regulate()

    def resume_writing(self) -> None:
        self._writable.set()
        self._regulate()

    def data_received(self, data: bytes) -> None:
        if self._state is StreamState.GREETING and self._is_misdirected(data):
            return
        try:
            for kind, body in self._parser.feed(data):
                _ON_FRAME[self._state](self, kind, body)
        except (FrameError, ProtocolError) as error:
            self.refuse(str(error))
            return
        except AuthorizationError as error:
            self.refuse(str(error), error_fields(error)[0])
            return
        if self._in_flight >= IN_FLIGHT_MAX:
            self._regulate()

    def _is_misdirected(self, data: bytes) -> bool:
        """Answer a client of another port with the address of the right one."""
        what = protocol_of(data)
        if what is None or what is ClientProtocol.STREAM or self._transport is None:
            return False
        self._transport.write(refusal(what, self._server.misdirected(what)))
        self.close()
        return True

    def _moved(self, event: StreamEvent) -> StreamState:
        self._state = next_state(TRANSITIONS, self._state, event)
        return self._state

    def _on_early_frame(self, kind: int, body: Any) -> None:
        raise ProtocolError("a frame before WELCOME: wait for WELCOME first")

    def _on_request(self, kind: int, body: Any) -> None:
        if self._session_auth is None:
            self._handle(kind, body)
            return
        try:
            self._session_auth.admit(kind, body, self._handle, self._caught_up)
        except Unauthenticated as error:
            self._sign_out(error)
        self._regulate()

    def _on_late_frame(self, kind: int, body: Any) -> None:
        """It is not executed."""

    def _handle(self, kind: int, body: Any) -> None:
        handler = _HANDLERS.get(kind)
        if handler is None:
            raise ProtocolError(f"frames of kind {kind} are not sent by clients")
        handler(self, body)

    def _on_hello(self, kind: int, body: Any) -> None:
        frame_checks.check_hello(kind, body)
        if body.get("identify") is True:
            self._write(FrameKind.WELCOME, self._server.identity())
            self.close()
            return
        self._follows = body.get("follows") is True
        self._timeout.begin(body)
        session_auth = self._server.session_auth(self._transport, self._tasks.spawn)
        if session_auth is None:
            self._welcome()
        else:
            self._moved(StreamEvent.AUTHENTICATE)
            self._tasks.spawn(self._authenticate(session_auth, body))

    def _welcome(self) -> None:
        if self._moved(StreamEvent.WELCOME) is StreamState.OPEN:
            self._write(FrameKind.WELCOME, self._server.welcome())

    async def _authenticate(self, session_auth: SessionAuth, hello: dict[str, Any]) -> None:
        try:
            await session_auth.authenticate(hello)
        except AuthorizationError as error:
            self.refuse(str(error), error_fields(error)[0])
            return
        self._session_auth = session_auth
        self._welcome()

    def _caught_up(self, failed: Exception | None) -> None:
        """No frame waits for the rights of this connection any more, or they could not be determined (`failed`)."""
        if isinstance(failed, FrameError | ProtocolError):
            self.refuse(str(failed))
        elif isinstance(failed, Unauthenticated):
            self._sign_out(failed)
        elif failed is not None:
            self.refuse(str(failed), error_fields(failed)[0])
        self._regulate()

    def _sign_out(self, error: Unauthenticated) -> None:
        """The credentials are not valid any more: execute no further frame, answer those before it, then close."""
        if self._state is StreamState.OPEN:
            self._moved(StreamEvent.SIGN_OUT)
            self._tasks.spawn(refuse_when_idle(self, error, self._timeout.seconds))

    # Requests.

    def _on_writes(self, body: Any) -> None:
        """Invalid writes are refused at once; the rest of the frame is proposed together."""
        try:
            self._in_flight += self._service.submit_frame(
                pairs_of(body), self, ITEMS_MAX, caller=self._caller("a write"), timeout_s=self._timeout.seconds
            )
        except TooManyPuts as error:
            raise ProtocolError(str(error)) from None

    def on_refusal(self, writes: Sequence[CheckedWrite], error: Exception) -> None:
        for write in writes:
            for number in range(write.number, write.number + write.puts):
                self._send_failure(number, error)

    def on_failure(self, writes: Sequence[CheckedWrite], error: Exception) -> None:
        self._in_flight -= sum([write.puts for write in writes])
        self.on_refusal(writes, error)

    def on_results(self, writes: Sequence[CheckedWrite], results: Sequence[Any]) -> None:
        self._in_flight -= sum([write.puts for write in writes])
        answers: list[Any] = [None] * (2 * len(writes))
        answers[::2], answers[1::2] = [write.number for write in writes], results
        self._results += answers
        self._flush_soon()

    def _caller(self, action: str) -> Caller:
        return UNRESTRICTED if self._session_auth is None else self._session_auth.caller(action)

    def _on_reads(self, body: Any) -> None:
        caller = self._caller("a read")
        for number, fields in pairs_of(body):
            try:
                request = read_range(fields, self._service.store.limits)
                self._service.authorize(request, caller)
                result = self._service.range_now(request, caller=UNRESTRICTED) if self._writable.is_set() else None
            except Exception as error:
                self._send_failure(number, error)
                continue
            if result is not None:
                self._send_range(number, result)
            else:
                self._run(number, partial(self._read, number, request))

    async def _read(self, number: int, request: Range) -> None:
        """`_on_reads` has authorized it. If it waits until the client receives, it is authorized again."""
        waits = not self._writable.is_set()
        while not self._writable.is_set():
            await self._writable.wait()
        if waits and self._session_auth is not None:
            await self._session_auth.reauthorize(request)
        result = await self._service.range(
            request, caller=UNRESTRICTED, timeout_s=self._timeout.seconds, bytes_max=ANSWER_BYTES_MAX
        )
        if size_of(result.kvs) > FRAME_BYTES_MAX // 2:
            raise RequestTooLarge(f"the result exceeds {FRAME_BYTES_MAX // 2} bytes: read with a limit")
        self._send_range(number, result)

    def _send_range(self, number: int, result: RangeResult) -> None:
        self._results += (number, encode_result(result))
        self._results_bytes += size_of(result.kvs)
        if self._results_bytes > RESULTS_BYTES_MAX:
            self._flush_results()
        else:
            self._flush_soon()

    def _on_call(self, body: Any) -> None:
        number, name, arguments = frame_checks.call_in(body)
        self._run(number, partial(self._call, number, name, arguments))

    async def _call(self, number: int, name: Any, arguments: Any) -> None:
        if self._session_auth is not None:
            await self._session_auth.call(name, arguments)
        answer = await self._server.calls.run(name, arguments, self._timeout.seconds)
        self._write(FrameKind.ANSWER, [number, answer])

    def _run(self, number: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """The connection may break before the task starts; then it never starts."""
        self._in_flight += 1
        self._tasks.spawn(self._run_guarded(number, work))

    async def _run_guarded(self, number: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except Exception as error:
            self._send_failure(number, error)
        finally:
            self._in_flight -= 1
            if self._state is StreamState.SIGNED_OUT:
                self._flush_soon()
            if not self._reading:
                self._regulate()

    # Watches.

    def _on_watch(self, body: Any) -> None:
        try:
            number, request, progress_s, credit = read_watch(body)
        except InvalidRequest as error:
            raise ProtocolError(str(error)) from None
        if number in self._watches or len(self._watches) >= WATCHES_MAX:
            raise ProtocolError(f"watch {number}: its number is in use, or {WATCHES_MAX} watches are open")
        self._watches[number] = watch = StreamWatch(number, credit)
        watch.task = self._tasks.spawn(self._watch(watch, request, progress_s))

    async def _watch(self, watch: StreamWatch, request: Any, progress_s: float | None) -> None:
        try:
            reauthorize = None if self._session_auth is None else partial(self._session_auth.reauthorize, request)
            await watch.run(self._service, request, progress_s, self._write, self._writable, reauthorize)
        except Exception as error:
            code, text, minimal = error_fields(error)
            self._write(FrameKind.WATCH_ENDED, [watch.number, code, text, minimal])
        finally:
            if self._watches.get(watch.number) is watch:
                del self._watches[watch.number]
            watch.task = None

    def _on_more(self, body: Any) -> None:
        number, batches = frame_checks.more_in(body)
        watch = self._watches.get(number)
        if watch is not None:
            watch.grant(batches)

    def _on_unwatch(self, body: Any) -> None:
        watch = self._watches.pop(frame_checks.unwatch_in(body), None)
        if watch is not None and watch.task is not None:
            watch.task.cancel()

    # Fencing.

    def _on_fence(self, body: Any) -> None:
        if self._session_auth is not None:
            self._session_auth.require_node()
        lease_port = self._server.lease_port
        if self._lease_connection is None:
            if lease_port is None:
                raise ProtocolError("this node grants no leases")
            self._lease_connection = lease_port.open(self._write_bytes, self._unsent, self.close, self.abort)
        try:
            self._lease_connection.receive(body)
        except ValueError as error:
            raise ProtocolError(str(error)) from None

    def _write_bytes(self, frame: bytes) -> None:
        if self._transport is not None:
            self._transport.write(frame)

    def _unsent(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    # Results.

    def _send_failure(self, number: int, error: Exception) -> None:
        self._failures += (number, error_fields(error))
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._server.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        self._flushed.set()
        self._flushed.clear()
        self._flush_results()
        if self._failures:
            items, self._failures = self._failures, []
            self._write_items(FrameKind.FAILURES, items)
        if not self._reading:
            self._regulate()

    def _flush_results(self) -> None:
        items, self._results = self._results, []
        self._results_bytes = 0
        if items:
            self._write_items(FrameKind.RESULTS, items)

    def _write_items(self, kind: FrameKind, items: list[Any]) -> None:
        step = 2 * ITEMS_MAX
        for start in range(0, len(items), step):
            self._write(kind, items[start : start + step] if len(items) > step else items)

    def _write(self, kind: FrameKind, body: Any) -> None:
        if self._transport is not None:
            self._transport.write(self._encode(kind, body))

    def refuse(self, reason: str, code: str = "", *, unanswered_not_executed: bool = False) -> None:
        """Send the reason, then close the connection. `code`: of `wire.error_codes`, if there is one."""
        certain = {"unanswered_not_executed": True} if unanswered_not_executed else {}
        self._write(FrameKind.REFUSED, {"reason": reason, **({"code": code} if code else {}), **certain})
        self.close()

    def send_leader(self, body: list[Any]) -> None:
        if self._follows:
            self._write(FrameKind.LEADER, body)

    # Bounds.

    def _regulate(self) -> None:
        """Read only while there is room for more requests."""
        room = IN_FLIGHT_MAX if self._reading else IN_FLIGHT_MAX // 2
        waits = self._session_auth is not None and self._session_auth.is_waiting
        wanted = self._writable.is_set() and self._in_flight < room and not waits
        if wanted == self._reading or self._transport is None:
            return
        self._reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    @property
    def idle(self) -> bool:
        """Every request has its result."""
        return not (self._in_flight or self._flushing)

    @property
    def greeted(self) -> bool:
        return self._state >= StreamState.OPEN

    async def wait_idle(self) -> None:
        """Return once every request that has arrived has its result."""
        while self._transport is not None and not self.idle:
            await self._flushed.wait()

    def close(self) -> None:
        """Close once the bytes written so far are sent."""
        self._moved(StreamEvent.END)
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


_ON_FRAME: Mapping[StreamState, Callable[[StreamConnection, int, Any], None]] = {
    StreamState.GREETING: StreamConnection._on_hello,
    StreamState.AUTHENTICATING: StreamConnection._on_early_frame,
    StreamState.OPEN: StreamConnection._on_request,
    StreamState.SIGNED_OUT: StreamConnection._on_late_frame,
    StreamState.ENDED: StreamConnection._on_late_frame,
}
_HANDLERS: dict[int, Callable[[StreamConnection, Any], None]] = {
    FrameKind.WRITES: StreamConnection._on_writes,
    FrameKind.READS: StreamConnection._on_reads,
    FrameKind.CALL: StreamConnection._on_call,
    FrameKind.WATCH: StreamConnection._on_watch,
    FrameKind.MORE: StreamConnection._on_more,
    FrameKind.UNWATCH: StreamConnection._on_unwatch,
    FrameKind.FENCE: StreamConnection._on_fence,
}
