"""`Peers` over TCP: the transport between the members of a group.

Each member dials every other one and sends on the connection that it dialled; it receives on those that the others
dialled. Thus no tie must be broken, and each direction is detected as dead separately. Guarantees:

- Frames of one connection arrive in order and complete, or the connection ends. Only the connection of a member that
  greeted last is used for receiving, so no message of an earlier connection arrives after one of a later connection.
- No message is accepted from a connection before both sides have greeted and accepted each other: same protocol
  version, and the checks of `MessageReceiver.greet`. Until then a frame has at most 64 KiB, the greeting may take 5 s,
  and there are at most 256 such connections.
- `send` only queues. Messages queued in one turn of the event loop leave in one write; a member with more than 64 MiB
  queued is disconnected.
- A connection without activity for `idle_timeout_s` is closed. The dialler pings once a second on each connection and
  is answered on the same, so silence means that one direction is broken. A queue that drains counts as activity: on a
  slow line a ping may wait long after a snapshot.
- After `close` the receiver is not called any more, and no task and no timer is left.

The log has one line when the connections with a member begin to fail, further ones at growing intervals, and one when
they are established again. Ends of other connections are a line each, with a rate limit; hostile bytes never cause a
traceback.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import ssl
from collections.abc import Callable, Mapping
from typing import Any

from palisade.base.frames import Encoder
from palisade.base.log_rate_limit import LogLimit
from palisade.base.network_reason import reason_of
from palisade.base.recurring_line import RecurringLine
from palisade.raftgroup.errors import NodeFailed
from palisade.raftgroup.handshake import GROUP_KINDS
from palisade.raftgroup.inbound_connection import Accepted
from palisade.raftgroup.outbound_connection import Dialled, Dialler, split_address
from palisade.raftgroup.peer_connection import PeerConnection, TransportLimits
from palisade.raftgroup.ports import MessageReceiver, Random

_log = logging.getLogger(__name__)


QUIET_S = 1.0
"""How long a member has to be connected, both ways, before that is logged."""
SILENT_AFTER_PINGS = 2.5
"""A connected member that has sent nothing for this number of ping intervals does not answer."""


class CannotListen(NodeFailed):
    """This node cannot listen on the address for members; the text has the cause and the remedy."""


class TcpPeers:
    """The real `ports.Peers`. `listen` is 'host:port'; port 0 takes any free one, see `address`.

    `ports`: name -> 'host:port' of this node, for clients that meant another port.
    `server_tls` and `client_tls` turn on TLS for accepted and dialled connections; require certificates there
    (`verify_mode`) to admit members only.
    """

    def __init__(
        self,
        listen: str,
        random: Random,
        *,
        limits: TransportLimits | None = None,
        server_tls: ssl.SSLContext | None = None,
        client_tls: ssl.SSLContext | None = None,
        ports: Mapping[str, str] | None = None,
    ) -> None:
        self.ports = ports or {}
        self.limits = limits or TransportLimits()
        self.encoder = Encoder()
        self.receiver: MessageReceiver
        self._listen = listen
        self._random = random
        self._server_tls = server_tls
        self._client_tls = client_tls
        self._members: dict[str, str] = {}
        self._own_id = ""
        self._server: asyncio.Server | None = None
        self._loop: asyncio.AbstractEventLoop
        self._diallers: dict[str, Dialler] = {}
        self._hung_up: list[Dialler] = []
        self._outgoing: dict[str, Dialled] = {}
        self._incoming: dict[str, Accepted] = {}
        self._open: set[PeerConnection] = set()
        self._strangers: set[PeerConnection] = set()
        self._to_flush: list[Callable[[], None]] = []
        self._log_limit = LogLimit()
        self._trouble: dict[str, RecurringLine] = {}
        """By member: what is wrong with the connections to and from it."""
        self._ticker: asyncio.TimerHandle | None = None
        self._tick_due = 0.0
        self._closed = False
        self._all_lost = asyncio.Event()

    # ports.Peers

    def send(self, member: str, kind: int, body: Any) -> bool:
        """As `Peers.send`. Raises ValueError or TypeError for a kind or body that no frame can carry: an error of the
        caller."""
        if kind < GROUP_KINDS:
            raise ValueError(f"kind {kind} belongs to the transport; kinds of the group begin at {GROUP_KINDS}")
        connection = self._outgoing.get(member)
        if connection is None:
            return False
        frame = self.encoder.encode(kind, body)
        if len(frame) - 4 > self.limits.frame_bytes_max:
            self.warn(f"a message of kind {kind} and {len(frame)} bytes is too large for {member} and was not sent")
            return False
        return connection.send(frame)

    def queued_bytes(self, member: str) -> int:
        connection = self._outgoing.get(member)
        return connection.queued_bytes if connection else 0

    def connected(self) -> frozenset[str]:
        return frozenset(member for member, connection in self._outgoing.items() if not connection.closing)

    def answering(self) -> frozenset[str]:
        since = self.now() - SILENT_AFTER_PINGS * self.limits.ping_interval_s
        both = self._outgoing, self._incoming
        heard = {member: [each[member].heard_at for each in both if member in each] for member in self.connected()}
        return frozenset(member for member, times in heard.items() if max(times) >= since)

    def set_members(self, addresses: dict[str, str]) -> None:
        self._members = dict(addresses)
        self._trouble = {member: line for member, line in self._trouble.items() if member in addresses}
        if self._server is not None and not self._closed:
            self._dial_members()
            for member, connection in list(self._incoming.items()):
                if member not in addresses:
                    connection.close("no longer a member")

    async def start(self, receiver: MessageReceiver) -> None:
        """Listen and dial. Raises CannotListen."""
        self.receiver = receiver
        self._own_id = receiver.greeting()["member"]
        self._loop = asyncio.get_running_loop()
        self._server = await self._begin_to_listen()
        self._tick_due = self.now() + self.limits.tick_s
        self._ticker = self._loop.call_at(self._tick_due, self._tick)
        self._dial_members()

    async def close(self) -> None:
        if self._server is None or self._closed:
            return
        self._closed = True
        if self._ticker is not None:
            self._ticker.cancel()
        self._server.close()
        for connection in list(self._open):
            connection.close("this node is stopping")
        for dialler in (*self._diallers.values(), *self._hung_up):
            await dialler.stop("this node is stopping")
        await self._wait_until_all_is_lost()
        await self._server.wait_closed()

    # For the owner of the node.

    @property
    def address(self) -> str:
        """The address where this node listens, with the actual port."""
        if self._server is None or not self._server.sockets:
            return self._listen
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def flush(self) -> None:
        """Send all queued messages now, instead of after this turn of the event loop."""
        flushes, self._to_flush = self._to_flush, []
        for flush in flushes:
            flush()

    # inbound_connection.AcceptingHub, outbound_connection.DiallingHub

    def now(self) -> float:
        return self._loop.time()

    def warn(self, line: str, member: str = "") -> None:
        now = self.now()
        if member in self._members:
            admitted = self._trouble.setdefault(member, RecurringLine()).holds(line, now)
        else:
            admitted = self._log_limit.admit(line, now)
        admitted = None if self._closed else admitted
        if admitted is not None:
            _log.warning("peer connection: node=%s reason=%s", self._own_id, admitted)

    def _note_connected(self, now: float) -> None:
        for member, trouble in self._trouble.items():
            if member in self._outgoing and member in self._incoming:
                line = trouble.over(f"{member} is connected again", now, QUIET_S)
                if line is not None:
                    _log.info("peer connection: node=%s reason=%s", self._own_id, line)

    def opened(self, connection: PeerConnection) -> None:
        self._open.add(connection)
        if isinstance(connection, Accepted):
            self._strangers.add(connection)
        if self._closed:
            connection.abort("this node is stopping")

    def is_full(self) -> bool:
        return len(self._strangers) > self.limits.strangers_max

    def introduced(self, connection: Accepted) -> None:
        self._strangers.discard(connection)
        before = self._incoming.get(connection.member)
        self._incoming[connection.member] = connection
        if before is not None:
            before.abort("replaced by a newer connection")
        dialler = self._diallers.get(connection.member)
        if dialler is not None:
            dialler.is_up()

    def can_send(self, connection: Dialled) -> None:
        self._outgoing[connection.member] = connection
        self.receiver.on_connected(connection.member, connection.greeting)

    def lost(self, connection: PeerConnection) -> None:
        self._open.discard(connection)
        self._strangers.discard(connection)
        if self._closed and not self._open:
            self._all_lost.set()
        if isinstance(connection, Accepted):
            if self._incoming.get(connection.member) is connection:
                del self._incoming[connection.member]
        elif isinstance(connection, Dialled) and self._outgoing.get(connection.member) is connection:
            del self._outgoing[connection.member]
            if not self._closed:
                self.receiver.on_disconnected(connection.member)

    def flush_soon(self, flush: Callable[[], None]) -> None:
        if not self._to_flush:
            self._loop.call_soon(self.flush)
        self._to_flush.append(flush)

    # Internals.

    async def _begin_to_listen(self) -> asyncio.Server:
        host, port = split_address(self._listen)
        tls_timeout_s = self.limits.handshake_timeout_s if self._server_tls else None
        try:
            return await self._loop.create_server(
                lambda: Accepted(self),
                host,
                port,
                ssl=self._server_tls,
                ssl_handshake_timeout=tls_timeout_s,
                reuse_address=True,
                backlog=2 * self.limits.strangers_max,
            )
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                why, remedy = "is in use", "stop the process that listens there, or give this node another peer port"
            else:
                why, remedy = f"can't be used ({reason_of(error)})", "correct this node's peer address"
            raise CannotListen(f"peer port {port} of {host} {why}: {remedy}") from None

    def _dial_members(self) -> None:
        wanted = {member: address for member, address in self._members.items() if member != self._own_id}
        for member, dialler in list(self._diallers.items()):
            if wanted.get(member) != dialler.address:
                self._hung_up = [old for old in self._hung_up if not old.is_over]
                self._hung_up.append(self._diallers.pop(member))
                dialler.stop_dialling("no longer a member at this address")
        for member, address in wanted.items():
            if member not in self._diallers:
                self._diallers[member] = Dialler(self, member, address, self._random, self._client_tls)

    def _tick(self) -> None:
        now = self.now()
        was_stopped = now - self._tick_due > self.limits.idle_timeout_s / 2
        for connection in list(self._open):
            if was_stopped:
                connection.reset_idle_timer(now)
            connection.tick(now)
        self._note_connected(now)
        self._tick_due = now + self.limits.tick_s
        self._ticker = self._loop.call_at(self._tick_due, self._tick)

    async def _wait_until_all_is_lost(self) -> None:
        if self._open:
            impatient = self._loop.call_later(self.limits.close_timeout_s, self._abort_all)
            await self._all_lost.wait()
            impatient.cancel()

    def _abort_all(self) -> None:
        for connection in list(self._open):
            connection.abort("this node is stopping")
