"""One client of the stream, on the side of the node.

All frames of one read are handled in one go; all answers of one turn of the loop leave in one write. What a client
can make the node keep is bounded: see `IN_FLIGHT_MAX`; a client that does not read is not read from either. What a
connection had kept goes with it: when it is over it is part of no cycle, since a node looks for cycles rarely.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from palisade.api.stream.frame_checks import NUMBER_MAX, ProtocolError, a_number, pairs_of, told
from palisade.api.stream.lease_port import LeaseConnection
from palisade.api.stream.session_auth import Guard
from palisade.api.stream.tasks import Tasks
from palisade.api.stream.watches import Pump, read_watch
from palisade.base.connection_limit import Admittance
from palisade.base.frames import FRAME_BYTES_MAX, Encoder, FrameError, FrameParser
from palisade.metastore.errors import InvalidRequest, RequestTooLarge
from palisade.metastore.requests import Range
from palisade.metastore.result_codec import encode_result
from palisade.metastore.results import RangeResult
from palisade.service.callers import EVERYBODY, Caller
from palisade.service.range_pages import size_of
from palisade.service.write_checks import CheckedWrite, TooManyPuts, read_range
from palisade.wire.auth_errors import AuthorizationError
from palisade.wire.stream_frames import IN_FLIGHT_MAX, ITEMS_MAX, PROTOCOL, FrameKind

if TYPE_CHECKING:
    from palisade.api.stream.server_port import ServerPort

WATCHES_MAX = 10_000
ANSWER_BYTES_MAX = 8 * 1024 * 1024
"""Where an answer to a range ends, with `more`; the client asks for the rest."""
RESULTS_BYTES_MAX = 1024 * 1024
"""About how much is gathered before it is written: then it shows whether the client reads."""
PATIENCE = 0.9
"""The part of a client's patience that the node uses up at most."""
DEADLINE_S_MIN = 0.01


class StreamConnection(asyncio.Protocol):
    """Numbers in `_results` and `_failures` alternate with what is answered to them, as the frames have it."""

    def __init__(self, server: ServerPort) -> None:
        self._server = server
        self._service = server.service
        self._parser = FrameParser(server.frame_bytes_max, items_max=4 * ITEMS_MAX)
        self._encode = Encoder().encode
        self._transport: asyncio.Transport | None = None
        self._greeted = False
        self._follows = False
        self._timeout_s = self._service.deadline_s
        self._in_flight = 0
        self._reading = True
        self._results: list[Any] = []
        self._results_bytes = 0
        self._failures: list[Any] = []
        self._flushing = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._calm = asyncio.Event()
        self._pumps: dict[int, Pump] = {}
        self._tasks = Tasks(server.loop)
        self._gate: Guard | None = None
        """Asked before anything is done; None where nobody is asked who they are."""
        self._enters = False
        self.since = server.now()
        self._visit: LeaseConnection | None = None

    # What the transport tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._server.connections[self] = None
        self._service.metrics.stream_connections += 1
        if self._server.room.receive(self.since) is not Admittance.STAYS:
            self.refuse(self._server.room.reason)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._server.connections.pop(self, None)
        self._service.metrics.stream_connections -= 1
        self._writable.set()
        self._tasks.cancel()
        self._pumps.clear()
        visit, self._visit = self._visit, None
        if visit is not None:
            visit.lost()

    def pause_writing(self) -> None:
        self._writable.clear()
        self._regulate()

    def resume_writing(self) -> None:
        self._writable.set()
        self._regulate()

    def data_received(self, data: bytes) -> None:
        try:
            for kind, body in self._parser.feed(data):
                self._on_frame(kind, body)
        except (FrameError, ProtocolError) as error:
            self.refuse(str(error))
            return
        except AuthorizationError as error:
            self.refuse(str(error), told(error)[0])
            return
        if self._in_flight >= IN_FLIGHT_MAX:
            self._regulate()

    def _on_frame(self, kind: int, body: Any) -> None:
        if not self._greeted:
            self._on_hello(kind, body)
        elif self._gate is None:
            self._handle(kind, body)
        else:
            self._gate.admit(kind, body, self._handle, self._caught_up)
            self._regulate()

    def _handle(self, kind: int, body: Any) -> None:
        handler = _HANDLERS.get(kind)
        if handler is None:
            raise ProtocolError(f"a client does not send frames of kind {kind}")
        handler(self, body)

    def _on_hello(self, kind: int, body: Any) -> None:
        if self._enters:
            raise ProtocolError("wait for WELCOME before you ask for anything")
        if kind != FrameKind.HELLO or type(body) is not dict:
            raise ProtocolError("the first frame has to be HELLO: this is the port of the palisade stream")
        if body.get("protocol") != PROTOCOL:
            spoken = str(body.get("protocol"))[:32]
            raise ProtocolError(f"protocol {spoken} is not spoken here, but {PROTOCOL}: use a client of this version")
        if body.get("identify") is True:
            self._write(FrameKind.WELCOME, self._server.identity())
            self.close()
            return
        self._follows = body.get("follows") is True
        self._timeout_s = self._deadline(body.get("timeout_ms"))
        guard = self._server.guard(self._transport, self._tasks.spawn)
        if guard is None:
            self._welcome()
        else:
            self._enters = True
            self._tasks.spawn(self._enter(guard, body))

    def _welcome(self) -> None:
        self._greeted = True
        self._write(FrameKind.WELCOME, self._server.welcome())

    async def _enter(self, guard: Guard, hello: dict[str, Any]) -> None:
        try:
            await guard.enter(hello)
        except AuthorizationError as error:
            self.refuse(str(error), told(error)[0])
            return
        self._gate = guard
        self._welcome()

    def _caught_up(self, failed: Exception | None) -> None:
        """Nothing waits for the rights of this connection any more, or it has none."""
        if isinstance(failed, FrameError | ProtocolError):
            self.refuse(str(failed))
        elif failed is not None:
            self.refuse(str(failed), told(failed)[0])
        self._regulate()

    def _deadline(self, client_ms: Any) -> float:
        """How long a write of this client may take, in seconds."""
        known_s = client_ms / 1000 if type(client_ms) is int and client_ms > 0 else self._service.deadline_s
        return max(DEADLINE_S_MIN, min(self._service.deadline_s, PATIENCE * known_s))

    # Requests.

    def _on_writes(self, body: Any) -> None:
        """What can be refused at once is; the rest of the frame is proposed together."""
        try:
            self._in_flight += self._service.submit_frame(
                pairs_of(body), self, ITEMS_MAX, caller=self._caller("a write"), timeout_s=self._timeout_s
            )
        except TooManyPuts as error:
            raise ProtocolError(str(error)) from None

    def on_refusal(self, writes: Sequence[CheckedWrite], error: Exception) -> None:
        for write in writes:
            for number in range(write.number, write.number + write.puts):
                self._tell_failure(number, error)

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
        return EVERYBODY if self._gate is None else self._gate.caller(action)

    def _on_reads(self, body: Any) -> None:
        caller = self._caller("a read")
        for number, fields in pairs_of(body):
            try:
                request = read_range(fields, self._service.store.limits)
                if self._writable.is_set():
                    result = self._service.range_now(request, caller=caller)
                else:
                    self._service.authorize(request, caller)
                    result = None
            except Exception as error:
                self._tell_failure(number, error)
                continue
            if result is not None:
                self._tell_range(number, result)
            else:
                self._later(number, partial(self._read, number, request))

    async def _read(self, number: int, request: Range) -> None:
        """`_on_reads` has authorized it."""
        while not self._writable.is_set():
            await self._writable.wait()
        result = await self._service.range(
            request, caller=EVERYBODY, timeout_s=self._timeout_s, bytes_max=ANSWER_BYTES_MAX
        )
        if size_of(result.kvs) > FRAME_BYTES_MAX // 2:
            raise RequestTooLarge(f"the answer has more than {FRAME_BYTES_MAX // 2} bytes: ask with a limit")
        self._tell_range(number, result)

    def _tell_range(self, number: int, result: RangeResult) -> None:
        self._results += (number, encode_result(result))
        self._results_bytes += size_of(result.kvs)
        if self._results_bytes > RESULTS_BYTES_MAX:
            self._flush_results()
        else:
            self._flush_soon()

    def _on_call(self, body: Any) -> None:
        if type(body) is not list or len(body) != 3:
            raise ProtocolError("a CALL has a number, a name and arguments")
        number = a_number(body[0])
        self._later(number, partial(self._call, number, body[1], body[2]))

    async def _call(self, number: int, name: Any, arguments: Any) -> None:
        if self._gate is not None:
            await self._gate.call(name, arguments)
        answer = await self._server.calls.run(name, arguments)
        self._write(FrameKind.ANSWER, [number, answer])

    def _later(self, number: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """The connection may break before it begins, and then it never does."""
        self._in_flight += 1
        self._tasks.spawn(self._guard(number, work))

    async def _guard(self, number: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except Exception as error:
            self._tell_failure(number, error)
        finally:
            self._in_flight -= 1
            if not self._reading:
                self._regulate()

    # Watches.

    def _on_watch(self, body: Any) -> None:
        try:
            number, request, progress_s, credit = read_watch(body)
        except InvalidRequest as error:
            raise ProtocolError(str(error)) from None
        if number in self._pumps or len(self._pumps) >= WATCHES_MAX:
            raise ProtocolError(f"watch {number}: its number is in use, or there are {WATCHES_MAX} watches already")
        if credit < 0:
            raise ProtocolError(f"watch {number}: a credit of {credit} batches makes no sense")
        self._pumps[number] = pump = Pump(number, credit)
        pump.task = self._tasks.spawn(self._watch(pump, request, progress_s))

    async def _watch(self, pump: Pump, request: Any, progress_s: float | None) -> None:
        try:
            still = None if self._gate is None else partial(self._gate.still, request)
            await pump.run(self._service, request, progress_s, self._write, self._writable, still)
        except Exception as error:
            code, text, minimal = told(error)
            self._write(FrameKind.WATCH_ENDED, [pump.number, code, text, minimal])
        finally:
            if self._pumps.get(pump.number) is pump:
                del self._pumps[pump.number]
            pump.task = None

    def _on_more(self, body: Any) -> None:
        if type(body) is not list or len(body) != 2 or not 0 < a_number(body[1]) < NUMBER_MAX:
            raise ProtocolError("MORE has the number of a watch and of batches")
        pump = self._pumps.get(a_number(body[0]))
        if pump is not None:
            pump.grant(body[1])

    def _on_unwatch(self, body: Any) -> None:
        if type(body) is not list or len(body) != 1:
            raise ProtocolError("UNWATCH has the number of a watch")
        pump = self._pumps.pop(a_number(body[0]), None)
        if pump is not None and pump.task is not None:
            pump.task.cancel()

    # Fencing.

    def _on_fence(self, body: Any) -> None:
        if self._gate is not None:
            self._gate.node()
        door = self._server.door
        if self._visit is None:
            if door is None:
                raise ProtocolError("this node grants no leases")
            self._visit = door.open(self._write_bytes, self._unsent, self.close, self.abort)
        try:
            self._visit.receive(body)
        except ValueError as error:
            raise ProtocolError(str(error)) from None

    def _write_bytes(self, frame: bytes) -> None:
        if self._transport is not None:
            self._transport.write(frame)

    def _unsent(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    # Answers.

    def _tell_failure(self, number: int, error: Exception) -> None:
        self._failures += (number, told(error))
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._server.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        self._calm.set()
        self._calm.clear()
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

    def refuse(self, reason: str, code: str = "") -> None:
        """Say why, and end the connection. `code`: of `wire.error_codes`, where it is one of those."""
        self._write(FrameKind.REFUSED, {"reason": reason} | ({"code": code} if code else {}))
        if self._transport is not None:
            self._transport.close()

    def tell_leader(self, body: list[Any]) -> None:
        if self._follows:
            self._write(FrameKind.LEADER, body)

    # Bounds.

    def _regulate(self) -> None:
        """Read on only while there is room for what would be read."""
        room = IN_FLIGHT_MAX if self._reading else IN_FLIGHT_MAX // 2
        waits = self._gate is not None and self._gate.waits
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
        """Nothing is asked for that is not answered."""
        return not (self._in_flight or self._flushing)

    @property
    def greeted(self) -> bool:
        return self._greeted

    async def wait_idle(self) -> None:
        """Return once every request that has arrived is answered."""
        while self._transport is not None and not self.idle:
            await self._calm.wait()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


_HANDLERS: dict[int, Callable[[StreamConnection, Any], None]] = {
    FrameKind.WRITES: StreamConnection._on_writes,
    FrameKind.READS: StreamConnection._on_reads,
    FrameKind.CALL: StreamConnection._on_call,
    FrameKind.WATCH: StreamConnection._on_watch,
    FrameKind.MORE: StreamConnection._on_more,
    FrameKind.UNWATCH: StreamConnection._on_unwatch,
    FrameKind.FENCE: StreamConnection._on_fence,
}
