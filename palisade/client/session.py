"""Carries requests and watches across connections.

Every request ends exactly once, at its deadline at the latest. A repeatable request is sent again over the next
connection; another one ends as OutcomeUnknown if its connection breaks while it is in flight. The newest request is at
most `NUMBERS_MAX` ahead of the oldest, so the node has the results of repeatable writes (`Limits.client_results_max`).
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from typing import Any

from palisade.client.client_closed import ClientClosed
from palisade.client.connection import ClientConnection
from palisade.client.connector import FAILURES, Connector
from palisade.client.endpoints import Endpoints
from palisade.client.pending_request import Operation, Slot, content_bytes, is_last, longest_wait_s
from palisade.client.recording import Recorder
from palisade.client.refused_addresses import RefusedAddresses
from palisade.client.sweeper import SWEEP_S, Sweeper
from palisade.client.watch import Watch
from palisade.client.whereabouts import LeaderNews, Whereabouts, beside, unconnected
from palisade.metastore.errors import MetastoreError
from palisade.metastore.put_series import results_in
from palisade.metastore.requests import WatchRequest
from palisade.raftgroup.errors import NodeFailed, OutcomeUnknown, Unavailable
from palisade.wire.auth_errors import PermissionsUnknown, Unauthenticated
from palisade.wire.credentials import Credentials
from palisade.wire.error_codes import WrongPort, error_of
from palisade.wire.fencing_errors import ReadPending, ReleasePending
from palisade.wire.stream_frames import FrameKind

PENDING_MAX, NUMBERS_MAX = 2048, 3500
RETRY_S = 0.05
BACKOFF_S = (0.02, 0.5)
MOVE_S = 1.0
"""Interval at which the session checks for a better node while there may be one."""
_CERTAIN = (MetastoreError, ReleasePending, OutcomeUnknown)
_UNKNOWN = "it may or may not have been applied; read before you continue"
CALM_S, CALM_LOOK_S = 0.3, 0.005


class StreamSession:
    """One logical connection to the cluster. Call `open` before use and `close` after."""

    def __init__(
        self, route: Endpoints, timeout_s: float, shown: Credentials | None = None, *, wait_for_nodes: bool = True
    ) -> None:
        """`shown`: the credentials, for nodes that require them. `wait_for_nodes` False: requests end at once if
        every known address refuses connections; they always do if every address is a wrong port."""
        self.refused_at = RefusedAddresses(may_begin=wait_for_nodes)
        self._route = route
        waited = lambda: longest_wait_s(self._pending.values(), timeout_s, self._loop.time())  # noqa: E731
        self._connector = Connector(route, self._on_frame, timeout_s, shown, waited)
        self._timeout_s = timeout_s
        self._pending: dict[int, Operation] = {}
        self._watches: dict[int, Watch] = {}
        self._numbers, self._oldest = 0, 1
        self._admission: deque[asyncio.Future[None]] = deque()
        self.link: ClientConnection | None = None
        self._leaving: ClientConnection | None = None
        self._found: Whereabouts | None = None
        self._found_anew = asyncio.Event()
        self._news = LeaderNews()
        self._trouble, self.connected_to = f"connecting to {route.current()}", "the nodes"
        self._closing = self._left_failed = False
        self._runner: asyncio.Task[None] | None = None
        self._recorder: Recorder | None = None
        self._sweeper = Sweeper(self._sweep)

    def open(self, recorder: Recorder | None = None) -> None:
        """`recorder`: of every request and its end; closed with the session."""
        self._loop, self._recorder = asyncio.get_running_loop(), recorder
        self._runner = self._loop.create_task(self._run())
        self._sweeper.start()

    async def close(self) -> None:
        """End every pending request and the connection."""
        self._closing = True
        self._sweeper.stop()
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.gather(self._runner, return_exceptions=True)
        for operation in list(self._pending.values()):
            self._give_up(operation, "the client was closed")
        for watch in list(self._watches.values()):
            watch.end(ClientClosed("the client was closed"))
        if self.link is not None:
            await self.link.end()
            self.link = None
        for turn in self._admission:
            if not turn.done():
                turn.set_exception(ClientClosed("the client was closed; nothing was sent"))
        self._admission.clear()
        if self._recorder is not None:
            self._recorder.close()

    # Requests.

    async def admit(self) -> None:
        """Wait until another request may be sent."""
        while self.is_full():
            turn: asyncio.Future[None] = self._loop.create_future()
            self._admission.append(turn)
            await turn

    def is_full(self) -> bool:
        """Whether the next request must wait (`admit`)."""
        if len(self._pending) >= PENDING_MAX:
            return True
        while self._oldest <= self._numbers and self._oldest not in self._pending:
            self._oldest += 1
        return self._numbers - self._oldest >= NUMBERS_MAX

    def send(
        self, kind: FrameKind, content: Any, size: int, timeout_s: float | None, *, repeatable: bool, writes: bool
    ) -> asyncio.Future[Any]:
        """The result, in its wire form. Call `admit` first."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.send_for(future, kind, content, size, timeout_s, repeatable=repeatable, writes=writes)
        return future

    def send_for(
        self,
        slot: Slot,
        kind: FrameKind,
        content: Any,
        size: int,
        timeout_s: float | None,
        *,
        repeatable: bool,
        writes: bool,
    ) -> None:
        """As `send`; the result goes to `slot`."""
        if self._closing or self._runner is None:
            raise ClientClosed("the client is not open; use it inside its 'async with'")
        if self._recorder is not None:
            slot = self._recorder.slot(kind, content, slot)
        self._numbers = number = self._numbers + 1
        now, own_s = self._loop.time(), self._timeout_s if timeout_s is None else timeout_s
        operation = Operation(kind, number, content, slot, now, own_s, repeatable=repeatable, writes=writes)
        self._pending[number] = operation
        if self._sweeper.is_calm:
            self._sweeper.wake()
        if self.link is not None:
            self._transmit(operation, self.link, size)

    def _transmit(self, operation: Operation, link: ClientConnection, size: int = 0) -> None:
        if not operation.may_be_applied:
            too_large = link.refusal_of_size(size or content_bytes(operation.content))
            if too_large is not None:
                self._refused(operation, too_large)
                return
        operation.leaves()
        if operation.kind is FrameKind.CALL:
            link.send(FrameKind.CALL, [operation.number, *operation.content])
        elif operation.kind is FrameKind.WRITES and type(operation.content) is tuple:
            link.gather_put(operation.number, *operation.content)
        else:
            content = operation.content
            link.gather(operation.kind, operation.number, content, size or content_bytes(content))

    # Results.

    def _on_frame(self, kind: int, body: Any) -> None:
        if kind == FrameKind.RESULTS:
            for number, wire in zip(body[::2], body[1::2], strict=True):
                of_series = results_in(wire)
                if of_series is None:
                    self._succeeded(number, wire)
                else:
                    for place, each in enumerate(of_series, number):
                        self._succeeded(place, each)
            self._admit_more()
        elif kind == FrameKind.FAILURES:
            for number, failure in zip(body[::2], body[1::2], strict=True):
                self._failed(number, error_of(*failure))
            self._admit_more()
        elif kind == FrameKind.ANSWER:
            operation = self._pending.pop(body[0], None)
            if operation is not None:
                operation.succeed(body[1])
            self._admit_more()
        elif kind == FrameKind.LEADER:
            self._leader_changed(*body)
        else:
            watch = self._watches.get(body[0])
            if watch is not None:
                watch.on_frame(kind, body)

    def _succeeded(self, number: int, wire: Any) -> None:
        operation = self._pending.pop(number, None)
        if operation is not None and not operation.slot.done():
            operation.slot.set_result(wire)

    def _failed(self, number: int, error: Exception) -> None:
        operation = self._pending.get(number)
        if operation is None:
            return
        nothing_done = isinstance(error, Unavailable | PermissionsUnknown | ReadPending)
        if isinstance(error, NodeFailed) and operation.repeatable:
            self.leave_failed_node(error)
        elif nothing_done and is_last(operation, self.link or self._leaving, self._timeout_s, self._loop.time()):
            self._refused(operation, beside(error, self._found, self._connector.unreached))
        elif nothing_done or (isinstance(error, OutcomeUnknown) and operation.repeatable):
            self._trouble = str(error)
            operation.sent, operation.unsure = False, operation.unsure or not nothing_done
            self._loop.call_later(RETRY_S, self._again, number)
        else:
            self._refused(operation, error)

    def leave_failed_node(self, error: NodeFailed) -> None:
        """Continue at another node: this one has stopped, or was removed from the cluster."""
        if (link := self.link or self._leaving) is not None:
            self._left_failed = True
            link.abort(str(error))

    def _refused(self, operation: Operation, error: Exception) -> None:
        """Only a refusal of the store covers all attempts, because the store knows the request by its id. Any other
        refusal covers the latest attempt only."""
        del self._pending[operation.number]
        if operation.writes and operation.unsure and not isinstance(error, _CERTAIN):
            error = OutcomeUnknown(f"{_UNKNOWN} (an earlier attempt was not answered; the latest: {error})")
        operation.fail(error)

    def _again(self, number: int) -> None:
        """Send it again, unless it was sent over another connection meanwhile and is not repeatable."""
        operation = self._pending.get(number)
        if operation is not None and self.link is not None and (operation.repeatable or not operation.sent):
            operation.tried_at = self._loop.time()
            self._transmit(operation, self.link)

    def _admit_more(self) -> None:
        waiting = self._admission
        room = PENDING_MAX - len(self._pending)
        while waiting and room > 0:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                room -= 1

    # Time.

    def _sweep(self) -> bool:
        now = self._loop.time()
        if (link := self.link) is not None and link.is_dead(now, awaited=bool(self._pending or self._watches)):
            link.abort("it does not respond")
            self._connector.avoid(self.address)
        for operation in [each for each in self._pending.values() if each.deadline <= now]:
            self._give_up(operation, "the deadline passed")
        self._admit_more()
        return bool(self._pending)

    def _give_up(self, operation: Operation, why: str) -> None:
        self._pending.pop(operation.number, None)
        if operation.may_be_applied:
            operation.fail(OutcomeUnknown(f"{why} without a response ({self._why_unanswered}): {_UNKNOWN}"))
        else:
            operation.fail(Unavailable(f"{why}; nothing was done: {self._why_unanswered}"))

    # Connections.

    async def _run(self) -> None:
        backoff_s = BACKOFF_S[0]
        while True:
            try:
                self._news.forget()
                link, found = await self._connector.connect(self._not_connected)
                self._found = self._news.applied_to(found)
            except FAILURES as error:
                self._route.advance()
                if isinstance(error, Unauthenticated):
                    self._end_all(error)
                    while not self._wanted:  # noqa: ASYNC110
                        await asyncio.sleep(SWEEP_S)
                await asyncio.sleep(backoff_s * (0.5 + random.random()))
                backoff_s = min(backoff_s * 1.6, BACKOFF_S[1])
                continue
            backoff_s = BACKOFF_S[0]
            self.refused_at.answered()
            self._trouble = f"{found.member} has not responded to the request"
            self._begin(link)
            while not link.closed.done():
                await self._until_news(link)
                found = self._found
                if found is not None and not link.closed.done() and self._connector.wants_better(found):
                    link = await self._move(link, found)
            self._lost(link)
            if self._left_failed:
                self._left_failed = False
                await asyncio.sleep(backoff_s * (0.5 + random.random()))

    def _not_connected(self, address: str, error: BaseException) -> None:
        nothing = self.refused_at.failed(address, error, self._route.known)
        self._trouble = self.refused_at.reasons.text
        if isinstance(nothing, WrongPort):
            self._end_all(nothing)
        elif nothing is not None:
            self._fail_pending(nothing)

    @property
    def _wanted(self) -> bool:
        """Whether anything is pending. If not, refused credentials are not sent again."""
        return bool(self._pending) or any(not watch.ended for watch in self._watches.values())

    def _end_all(self, error: Exception) -> None:
        """End everything that is pending. A write that was in flight may have been applied."""
        self._fail_pending(error)
        for watch in list(self._watches.values()):
            watch.end(error)

    def _fail_pending(self, error: Exception) -> None:
        for operation in list(self._pending.values()):
            if operation.may_be_applied:
                self._give_up(operation, str(error))
            else:
                del self._pending[operation.number]
                operation.fail(error)
        self._admit_more()

    async def _until_news(self, link: ClientConnection) -> None:
        """Wait until this connection ends, another leader is announced, or it is time to check for a better node."""
        announced = asyncio.ensure_future(self._found_anew.wait())
        look_again = self._found is not None and self._connector.wants_better(self._found)
        try:
            ends: set[asyncio.Future[Any]] = {link.closed, announced}
            await asyncio.wait(ends, timeout=MOVE_S if look_again else None, return_when=asyncio.FIRST_COMPLETED)
        finally:
            announced.cancel()
            self._found_anew.clear()

    def _leader_changed(self, member: object, leader: object, streams: object) -> None:
        """Announced by `member`: the connected node, or one that this client is connecting to."""
        self._news.note(member, leader, streams)
        if self._found is not None and self._found.member == member:
            self._found = self._news.applied_to(self._found)
            self._route.learn(self._found.streams.values())
            self._found_anew.set()

    async def _move(self, link: ClientConnection, found: Whereabouts) -> ClientConnection:
        """Move to a better node if there is one; returns the connection to use.

        Waits `CALM_S` for the requests in flight. Then repeatable ones are sent again over the new connection; if any
        is not repeatable, the session stays with this node for now.
        """
        self._news.forget()
        better = await self._connector.better(found)
        if better is None:
            return link
        self.link, self._leaving = None, link
        try:
            may_go = await self._calm(link)
        except BaseException:
            link.abort()
            better[0].abort()
            raise
        finally:
            self._leaving = None
        if not may_go:
            better[0].close()
            self._resume(link)
            return link
        if link.closed.done():
            self._lost(link)
        link.close()
        link, self._found = better[0], self._news.applied_to(better[1])
        self._begin(link)
        return link

    async def _calm(self, link: ClientConnection) -> bool:
        """Wait up to `CALM_S` for the requests in flight; False if one is left that is not repeatable."""
        end = self._loop.time() + CALM_S
        while not link.closed.done() and any(operation.sent for operation in self._pending.values()):
            if self._loop.time() >= end:
                return not any(operation.sent and not operation.repeatable for operation in self._pending.values())
            await asyncio.sleep(CALM_LOOK_S)
        return True

    def _resume(self, link: ClientConnection) -> None:
        """Continue over the connection that the session was about to leave."""
        self.link = link
        for operation in list(self._pending.values()):
            if operation.repeatable or not operation.sent:
                self._transmit(operation, link)
        for watch in self._watches.values():
            watch.begin_where_none(link)

    def _begin(self, link: ClientConnection) -> None:
        self.link = link
        self.connected_to = f"{self._found.member} at {self._found.address}" if self._found else "the nodes"
        for operation in list(self._pending.values()):
            self._transmit(operation, link)
        for watch in self._watches.values():
            watch.begin(link)

    @property
    def trouble(self) -> str | None:
        """Why no events can arrive at the moment; None if they can."""
        if self._found is None:
            return unconnected(self._why_unanswered, self._connector.silent)
        silence = None if self.link is None else self.link.silence(self._loop.time())
        return self._found.trouble(silence, self._connector.unreached)

    @property
    def has_uncertain_write(self) -> bool:
        """Whether a write is pending that may be applied."""
        return any(each.may_be_applied for each in self._pending.values())

    @property
    def _why_unanswered(self) -> str:
        """Why pending requests have no answer, as far as the nodes' errors show."""
        if self._found is not None:
            return self.trouble or self._trouble
        return self.refused_at.reasons.text_beside(self._connector.silent) or self._trouble

    @property
    def address(self) -> str:
        """The address of the connected node, which may be none of the given ones; else the one that is tried next."""
        return self._route.current() if self._found is None else self._found.address

    def _lost(self, link: ClientConnection) -> None:
        self.refused_at.reasons.failed(self.address, link.closed.result())
        self.link = self._found = None
        self._route.advance()
        for operation in list(self._pending.values()):
            if link.unanswered_not_executed:
                operation.sent = False
            if operation.sent and not operation.repeatable:
                self._give_up(operation, "the connection broke")
        self._admit_more()

    # Watches.

    def watch(self, request: WatchRequest, progress_s: float | None) -> Watch:
        if self._closing or self._runner is None:
            raise ClientClosed("the client is not open; use it inside its 'async with'")
        self._numbers = number = self._numbers + 1
        watch = Watch(number, request, progress_s, self)
        self._watches[number] = watch
        if self.link is not None:
            watch.begin(self.link)
        return watch

    def forget_watch(self, number: int) -> None:
        self._watches.pop(number, None)
        link = self.link or self._leaving
        if link is not None:
            link.send(FrameKind.UNWATCH, [number])
