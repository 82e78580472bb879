"""Keeps requests going over connections that come and go.

What holds: every request comes to exactly one end until its deadline. A request that may be repeated is sent again
over the next connection; one that may not, and was under way when its connection broke, ends as OutcomeUnknown. The
newest request is never more than `NUMBERS_MAX` ahead of the oldest, so that the node still remembers the result of
every write that may be repeated (`Limits.client_results_max`).
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from typing import Any

from palisade.base.network_reason import reason_of
from palisade.client.connection import ClientConnection
from palisade.client.connector import FAILURES, Connector, Whereabouts, whereabouts
from palisade.client.endpoints import Endpoints
from palisade.client.pending_request import Operation, Slot
from palisade.client.watch import Watch
from palisade.metastore.errors import MetastoreError
from palisade.metastore.put_series import results_in
from palisade.metastore.requests import WatchRequest
from palisade.raftgroup.errors import NodeFailed, OutcomeUnknown, Unavailable
from palisade.wire.auth_errors import PermissionsUnknown, Unauthenticated
from palisade.wire.credentials import Credentials
from palisade.wire.error_codes import error_of
from palisade.wire.fencing_errors import ReleasePending
from palisade.wire.stream_frames import FrameKind

PENDING_MAX = 2048
NUMBERS_MAX = 3500
SWEEP_S = 0.05
RETRY_S = 0.05
LAST_TRY = 0.25
"""A request that was refused with less than this part of the usual deadline left is not tried again: it could not
come to a certain end in time."""
PING_AFTER_S = 2.0
DEAF_AFTER_S = 5.0
BACKOFF_S = (0.02, 0.5)
_FIRST = asyncio.FIRST_COMPLETED
MOVE_S = 1.0
"""How often somebody better to be connected with is looked for while there may be one."""
_CERTAIN = (MetastoreError, ReleasePending, OutcomeUnknown)
_UNKNOWN = "it may be applied or not; read before you go on"
CALM_S = 0.3
CALM_LOOK_S = 0.005


class NothingListens(Unavailable):
    """Every known address refuses connections. Nothing was done."""


class StreamSession:
    """One logical connection to the cluster. `open` it before use, `close` it after."""

    def __init__(
        self, route: Endpoints, timeout_s: float, shown: Credentials | None = None, *, wait_for_nodes: bool = True
    ) -> None:
        """`shown`: who asks, to nodes that want to know. `wait_for_nodes` False: requests end at once when every known
        address refuses connections."""
        self._wait_for_nodes = wait_for_nodes
        self._refusing: set[str] = set()
        """Addresses that have refused since one of them answered."""
        self._route = route
        self._connector = Connector(route, self._on_frame, timeout_s, shown)
        self._timeout_s = timeout_s
        self._pending: dict[int, Operation] = {}
        self._watches: dict[int, Watch] = {}
        self._numbers = 0
        self._oldest = 1
        self._admission: deque[asyncio.Future[None]] = deque()
        self._link: ClientConnection | None = None
        self._leaving: ClientConnection | None = None
        self._found: Whereabouts | None = None
        self._found_anew = asyncio.Event()
        self._hearsay: dict[object, tuple[object, object]] = {}
        self._trouble = "no connection yet"
        self._closing = False
        self._pinged = False
        self._runner: asyncio.Task[None] | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._runner = self._loop.create_task(self._run())
        self._sweep()

    async def close(self) -> None:
        """End every request that is under way, and the connection."""
        self._closing = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.gather(self._runner, return_exceptions=True)
        for operation in list(self._pending.values()):
            self._give_up(operation, "the client was closed")
        for watch in list(self._watches.values()):
            watch.end(Unavailable("the client was closed"))
        if self._link is not None:
            self._link.close()
            await self._link.closed
            self._link = None
        for turn in self._admission:
            if not turn.done():
                turn.set_exception(Unavailable("the client was closed, nothing was done"))
        self._admission.clear()

    # Requests.

    async def admit(self) -> None:
        """Wait until there is room for another request."""
        while self.is_full():
            turn: asyncio.Future[None] = self._loop.create_future()
            self._admission.append(turn)
            await turn

    def is_full(self) -> bool:
        """Whether the next request has to wait (`admit`)."""
        if len(self._pending) >= PENDING_MAX:
            return True
        while self._oldest <= self._numbers and self._oldest not in self._pending:
            self._oldest += 1
        return self._numbers - self._oldest >= NUMBERS_MAX

    def send(
        self, kind: FrameKind, content: Any, size: int, timeout_s: float | None, *, repeatable: bool, writes: bool
    ) -> asyncio.Future[Any]:
        """The answer, in its wire form. Call `admit` before."""
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
        """As `send`; the answer goes to `slot`."""
        if self._closing or self._runner is None:
            raise Unavailable("the client is not open: use it inside of its 'async with'")
        self._numbers = number = self._numbers + 1
        deadline = self._loop.time() + (self._timeout_s if timeout_s is None else timeout_s)
        operation = Operation(kind, number, content, deadline, slot, repeatable=repeatable, writes=writes)
        self._pending[number] = operation
        if self._link is not None:
            self._transmit(operation, self._link, size)

    def _transmit(self, operation: Operation, link: ClientConnection, size: int = 0) -> None:
        operation.leaves()
        if operation.kind is FrameKind.CALL:
            link.send(FrameKind.CALL, [operation.number, *operation.content])
        elif operation.kind is FrameKind.WRITES and type(operation.content) is tuple:
            link.gather_put(operation.number, *operation.content)
        else:
            content = operation.content
            link.gather(operation.kind, operation.number, content, size or len(content))

    # Answers.

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
            self._told_of_leader(*body)
        else:
            watch = self._watches.get(body[0])
            if watch is not None:
                watch.on_frame(kind, body)

    def _succeeded(self, number: int, wire: Any) -> None:
        operation = self._pending.pop(number, None)
        if operation is not None:
            slot = operation.slot
            if not slot.done():
                slot.set_result(wire)

    def _failed(self, number: int, error: Exception) -> None:
        operation = self._pending.get(number)
        if operation is None:
            return
        nothing_done = isinstance(error, Unavailable | PermissionsUnknown)
        if isinstance(error, NodeFailed) and operation.repeatable:
            self._trouble = str(error)
            if self._link is not None:
                self._link.abort()
        elif nothing_done and operation.deadline - self._loop.time() < LAST_TRY * self._timeout_s:
            self._refused(operation, error)
        elif nothing_done or (isinstance(error, OutcomeUnknown) and operation.repeatable):
            self._trouble = str(error)
            operation.sent = not nothing_done
            self._loop.call_later(RETRY_S, self._again, number)
        else:
            self._refused(operation, error)

    def _refused(self, operation: Operation, error: Exception) -> None:
        """What the store says counts for all tries: it knows the request by its id. Whoever refuses in front of it
        knows of this try alone."""
        del self._pending[operation.number]
        if operation.writes and operation.unsure and not isinstance(error, _CERTAIN):
            error = OutcomeUnknown(f"{_UNKNOWN} (a try before was not answered; the last one: {error})")
        operation.fail(error)

    def _again(self, number: int) -> None:
        """Unless it has left meanwhile over another connection, and must not leave twice."""
        operation = self._pending.get(number)
        if operation is not None and self._link is not None and (operation.repeatable or not operation.sent):
            self._transmit(operation, self._link)

    def _admit_more(self) -> None:
        waiting = self._admission
        room = PENDING_MAX - len(self._pending)
        while waiting and room > 0:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                room -= 1

    # Time.

    def _sweep(self) -> None:
        now = self._loop.time()
        late = [operation for operation in self._pending.values() if operation.deadline <= now]
        for operation in late:
            self._give_up(operation, "the deadline passed")
        if late:
            self._admit_more()
        self._check_hearing(now)
        self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)

    def _give_up(self, operation: Operation, why: str) -> None:
        self._pending.pop(operation.number, None)
        if operation.may_be_applied:
            operation.fail(OutcomeUnknown(f"{why} without an answer ({self._trouble}): {_UNKNOWN}"))
        else:
            operation.fail(Unavailable(f"{why}, nothing was done: {self._trouble}"))

    def _check_hearing(self, now: float) -> None:
        """A node that is silent while something is expected of it may be gone: ask it, then leave it."""
        link = self._link
        if link is None or not (self._pending or self._watches):
            self._pinged = False
            return
        silence_s = now - link.last_heard
        if silence_s < PING_AFTER_S:
            self._pinged = False
        elif silence_s > DEAF_AFTER_S and self._pinged:
            self._trouble = f"{self._route.current()} does not answer"
            link.abort()
        elif not self._pinged:
            self._pinged = True
            link.send(FrameKind.CALL, [0, "ping", []])

    # Connections.

    async def _run(self) -> None:
        backoff_s = BACKOFF_S[0]
        while True:
            try:
                self._hearsay.clear()
                link, found = await self._connector.connect()
                self._found = self._as_last_heard(found)
            except FAILURES as error:
                self._trouble = f"{self._route.current()}: {reason_of(error)}"
                self._note_refusal(error)
                self._route.advance()
                if isinstance(error, Unauthenticated):
                    self._nobody(error)
                    while not self._wanted:  # noqa: ASYNC110
                        await asyncio.sleep(SWEEP_S)
                await asyncio.sleep(backoff_s * (0.5 + random.random()))
                backoff_s = min(backoff_s * 1.6, BACKOFF_S[1])
                continue
            backoff_s = BACKOFF_S[0]
            self._refusing.clear()
            self._begin(link)
            while not link.closed.done():
                await self._news(link)
                found = self._found
                if found is not None and not link.closed.done() and self._connector.wants_better(found):
                    link = await self._move(link, found)
            self._lost(link.closed.result())

    def _note_refusal(self, error: BaseException) -> None:
        if reason_of(error) != "connection refused":
            self._refusing.clear()
            return
        self._refusing.add(self._route.current())
        if self._wait_for_nodes or not self._refusing.issuperset(self._route.known):
            return
        text = f"connections are refused at {', '.join(self._route.known)}: no node listens there"
        for operation in list(self._pending.values()):
            if operation.may_be_applied:
                self._give_up(operation, text)
            else:
                del self._pending[operation.number]
                operation.fail(NothingListens(f"{text}; nothing was done"))
        self._admit_more()

    @property
    def _wanted(self) -> bool:
        """Somebody waits for something: else a wrong password is not shown again."""
        return bool(self._pending) or any(not watch.ended for watch in self._watches.values())

    def _nobody(self, error: Unauthenticated) -> None:
        """Nothing that is asked for can be had as this user; what was under way may have been done all the same."""
        for operation in list(self._pending.values()):
            if operation.may_be_applied:
                self._give_up(operation, str(error))
            else:
                del self._pending[operation.number]
                operation.fail(error)
        for watch in list(self._watches.values()):
            watch.end(error)
        self._admit_more()

    async def _news(self, link: ClientConnection) -> None:
        """Wait for the end of this connection, for word of another leader, or until it is time to look again."""
        told = asyncio.ensure_future(self._found_anew.wait())
        look_again = self._found is not None and self._connector.wants_better(self._found)
        try:
            ends: set[asyncio.Future[Any]] = {link.closed, told}
            await asyncio.wait(ends, timeout=MOVE_S if look_again else None, return_when=_FIRST)
        finally:
            told.cancel()
            self._found_anew.clear()

    def _told_of_leader(self, member: object, leader: object, streams: object) -> None:
        """By the node that this client is connected with, or by one whose connection is still in the making."""
        self._hearsay[member] = (leader, streams)
        if self._found is not None and self._found.member == member:
            self._found = self._as_last_heard(self._found)
            self._route.learn(self._found.streams.values())
            self._found_anew.set()

    def _as_last_heard(self, found: Whereabouts) -> Whereabouts:
        """What a node said at its welcome may be outdated before its connection comes into use."""
        told = self._hearsay.get(found.member)
        return found if told is None else whereabouts(found.address, found.member, *told)

    async def _move(self, link: ClientConnection, found: Whereabouts) -> ClientConnection:
        """To a better node, if there is one: returns the connection that is used from now on.

        What is under way may come to its end first. What has not after a moment is sent again over the new connection
        if that does no harm; if it does, the client stays, for now.
        """
        self._hearsay.clear()
        better = await self._connector.better(found)
        if better is None:
            return link
        self._link, self._leaving = None, link
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
            self._lost(link.closed.result())
        link.close()
        link, self._found = better[0], self._as_last_heard(better[1])
        self._begin(link)
        return link

    async def _calm(self, link: ClientConnection) -> bool:
        """Wait a moment for what is under way; False when something is left that must not be sent twice."""
        end = self._loop.time() + CALM_S
        while not link.closed.done() and any(operation.sent for operation in self._pending.values()):
            if self._loop.time() >= end:
                return not any(operation.sent and not operation.repeatable for operation in self._pending.values())
            await asyncio.sleep(CALM_LOOK_S)
        return True

    def _resume(self, link: ClientConnection) -> None:
        """Go on over the connection that was about to be left."""
        self._link = link
        for operation in self._pending.values():
            if operation.repeatable or not operation.sent:
                self._transmit(operation, link)
        for watch in self._watches.values():
            watch.begin_where_none(link)

    def _begin(self, link: ClientConnection) -> None:
        self._link = link
        self._pinged = False
        for operation in self._pending.values():
            self._transmit(operation, link)
        for watch in self._watches.values():
            watch.begin(link)

    @property
    def trouble(self) -> str | None:
        """Why nothing new can come at the moment; None where all is well."""
        if self._found is None:
            return f"there is no connection with a node ({self._trouble})"
        if self._found.leader is None:
            return f"{self._found.member} knows no leader, and no node that does has been found yet"
        return None

    def _lost(self, reason: str) -> None:
        self._link = self._found = None
        self._trouble = f"{self._route.current()}: {reason}"
        self._route.advance()
        for operation in list(self._pending.values()):
            if operation.sent and not operation.repeatable:
                self._give_up(operation, "the connection broke")
        self._admit_more()

    # Watches.

    def watch(self, request: WatchRequest, progress_s: float | None) -> Watch:
        if self._closing or self._runner is None:
            raise Unavailable("the client is not open: use it inside of its 'async with'")
        self._numbers = number = self._numbers + 1
        watch = Watch(number, request, progress_s, self)
        self._watches[number] = watch
        if self._link is not None:
            watch.begin(self._link)
        return watch

    def forget_watch(self, number: int) -> None:
        self._watches.pop(number, None)
        link = self._link or self._leaving
        if link is not None:
            link.send(FrameKind.UNWATCH, [number])
