"""The holder's connection to the leader: found, opened, kept, and replaced at once when the leader changes.

The leader's own node is a holder like the others, without a socket: its messages go through the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from palisade.base.address import Address
from palisade.base.frames import FRAME_BYTES_MAX, Encoder, FrameError, FrameParser
from palisade.base.network_reason import reason_of
from palisade.fencing.messages import Elsewhere, RefusedMessage
from palisade.node.fencing.lease_client import LeaseClient
from palisade.node.fencing.lease_server import HolderConnection, LeaseServer
from palisade.vault.errors import VaultError
from palisade.wire.credentials import NodeProof, to_hello
from palisade.wire.fence_messages import FROM_LEADER, BadMessage, FromHolder, FromLeader, pack, unpack
from palisade.wire.stream_frames import PROTOCOL, FrameKind

log = logging.getLogger(__name__)

TICK_S = 0.02
"""Interval of the checks for a due step while the holder waits for events that are not notified."""
RETRY_S = 0.05
CONNECT_S = 1.0
SILENT_S = 1.5
"""After this time without messages for a holder that requests leases, the leader is searched again."""


class LeaderRoute(Protocol):
    """How to find the leader."""

    def leads_here(self) -> bool: ...

    def leader(self) -> str | None:
        """Its stream address if known; None: members have to be asked."""
        ...

    def candidates(self) -> Sequence[str]:
        """Stream addresses of those that may know."""
        ...


class LeaderLink:
    """Runs until cancelled. `lease_server`: that of a member, used while it leads; None for a follower."""

    def __init__(
        self,
        holder: LeaseClient,
        route: LeaderRoute,
        node: str,
        lease_server: LeaseServer | None,
        shown: NodeProof | None = None,
    ) -> None:
        self._shown = shown
        self._holder, self._route, self._node, self._lease_server = holder, route, node, lease_server
        self._hint: str | None = None
        self._turn = 0
        self.at: str | None = None
        """The address of the connected leader; empty: in this process."""
        self.trouble = "no leader has been found yet"
        self._close: Callable[[], None] | None = None
        self._remote: tuple[str, LeaderConnection] | None = None
        """The connection to a leader in another process. At each tick it is compared with the known leader."""

    async def run(self) -> None:
        ticker = asyncio.get_running_loop().create_task(self._tick(), name="fence ticks")
        try:
            while not ticker.done():
                if not self._holder.has_history:
                    self.trouble = "its vault is not a part of the cluster yet"
                elif self._lease_server is not None and self._route.leads_here():
                    await self._stay_here(self._lease_server)
                else:
                    await self._stay_at(self._next_address())
                await asyncio.sleep(RETRY_S if self._hint is None else 0)
            ticker.result()
        finally:
            ticker.cancel()
            if self._close is not None:
                self._close()

    async def _tick(self) -> None:
        while True:
            self._holder.settle()
            self._holder.renew_if_due()
            if self._remote is not None and self._is_elsewhere(*self._remote):
                self._remote[1].close()
            await asyncio.sleep(self._holder.next_check_s(TICK_S))

    def _next_address(self) -> str | None:
        """The leader according to this node or the last member that was asked; else one member after the other."""
        hint, self._hint = self._route.leader() or self._hint, None
        if hint is not None:
            return hint
        candidates = self._route.candidates()
        self._turn += 1
        return candidates[self._turn % len(candidates)] if candidates else None

    # In this process

    async def _stay_here(self, lease_server: LeaseServer) -> None:
        loop, closed = asyncio.get_running_loop(), asyncio.Event()

        def deliver(message: FromLeader) -> None:
            if not closed.is_set() and not isinstance(message, Elsewhere | RefusedMessage):
                try:
                    self._holder.deliver(message)
                except VaultError as error:
                    self.trouble = _unstaged(self._node, error)
                    closed.set()

        def send(message: FromLeader) -> None:
            loop.call_soon(deliver, message)

        connection = HolderConnection(send, closed.set)
        self._begin(
            "", lambda message: lease_server.receive(connection, message), lambda: lease_server.drop(connection)
        )
        try:
            while not closed.is_set() and self._route.leads_here():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(closed.wait(), SILENT_S)
        finally:
            closed.set()
            self._end()
            lease_server.lost(connection)

    # Elsewhere

    async def _stay_at(self, address: str | None) -> None:
        if address is None:
            return
        loop = asyncio.get_running_loop()
        where = Address.parse(address)
        protocol = LeaderConnection(self._node, self._holder, self._shown)
        try:
            async with asyncio.timeout(CONNECT_S):
                await loop.create_connection(lambda: protocol, where.host, where.port)
                await protocol.greeted
        except (OSError, TimeoutError, BadMessage) as error:
            self.trouble = f"{address}: {reason_of(error)}"
            protocol.close()
            return
        self._begin(address, protocol.send, protocol.close)
        self._remote = address, protocol
        try:
            await protocol.closed.wait()
        finally:
            self._remote = None
            self._end()
            self._hint = protocol.elsewhere if protocol.elsewhere != address else None
            self.trouble = protocol.trouble or self.trouble
            protocol.close()

    def _is_elsewhere(self, address: str, protocol: LeaderConnection) -> bool:
        if self._route.leads_here():
            return True
        leader = self._route.leader()
        if leader is not None:
            return leader != address
        now = asyncio.get_running_loop().time()
        return self._holder.core.joined and now - protocol.heard_at > SILENT_S

    @property
    def welcomed(self) -> bool:
        """The connected leader has answered the Hello."""
        return self.at is not None and self._holder.welcomed

    def _begin(self, at: str, send: Callable[[FromHolder], None], close: Callable[[], None]) -> None:
        self.at, self._close = at, close
        self._holder.connected(send)

    def _end(self) -> None:
        self.at = self._close = None
        self._holder.disconnected()


class LeaderConnection(asyncio.Protocol):
    """A connection to the stream port of a member, for FENCE frames alone."""

    def __init__(self, node: str, holder: LeaseClient, shown: NodeProof | None = None) -> None:
        self._shown = shown
        loop = asyncio.get_running_loop()
        self._node, self._holder, self._loop = node, holder, loop
        self._parser = FrameParser(FRAME_BYTES_MAX)
        self._encode = Encoder().encode
        self._transport: asyncio.Transport | None = None
        self.greeted: asyncio.Future[None] = loop.create_future()
        self.closed = asyncio.Event()
        self.elsewhere: str | None = None
        self.trouble = ""
        self.heard_at = loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        hello = {"protocol": PROTOCOL, "client": f"fence-{self._node}", "follows": False}
        self._write(FrameKind.HELLO, hello | to_hello(self._shown))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.closed.set()
        if not self.greeted.done():
            self.greeted.set_exception(ConnectionError(self.trouble or "the connection broke before a greeting came"))
            self.greeted.exception()

    def data_received(self, data: bytes) -> None:
        self.heard_at = self._loop.time()
        try:
            for kind, body in self._parser.feed(data):
                self._on_frame(kind, body)
        except (FrameError, BadMessage) as error:
            self.trouble = f"the leader sent an invalid frame: {error}"
            log.warning("connection to the leader closed: node=%s reason=%s", self._node, self.trouble)
            self.close()

    def _on_frame(self, kind: int, body: Any) -> None:
        if kind == FrameKind.FENCE:
            self._on_message(unpack(body))
        elif kind == FrameKind.WELCOME and not self.greeted.done():
            self.greeted.set_result(None)
        elif kind == FrameKind.REFUSED:
            self.trouble = str(body.get("reason")) if isinstance(body, dict) else "refused"
            self.close()

    def _on_message(self, message: Any) -> None:
        if not isinstance(message, FROM_LEADER):
            raise BadMessage("not a message of a leader")
        if isinstance(message, Elsewhere):
            self.elsewhere, self.trouble = message.leader, "it does not lead"
            self.close()
        elif isinstance(message, RefusedMessage):
            self.trouble = message.reason
            log.warning("refused as a lease holder: node=%s reason=%s", self._node, message.reason)
            self.close()
        elif not self.closed.is_set():
            try:
                self._holder.deliver(message)
            except VaultError as error:
                self.trouble = _unstaged(self._node, error)
                self.close()

    def send(self, message: FromHolder) -> None:
        self._write(FrameKind.FENCE, pack(message))

    def _write(self, kind: FrameKind, body: Any) -> None:
        if self._transport is not None:
            self._transport.write(self._encode(kind, body))

    def close(self) -> None:
        self.closed.set()
        if self._transport is not None:
            self._transport.close()


def _unstaged(node: str, error: VaultError) -> str:
    """The connection is closed and opened again; if staging keeps failing the lease expires, and the node is fenced."""
    log.error("staged changes not stored: node=%s error=%s", node, error)
    return f"staged changes cannot be stored in the vault: {error}"
