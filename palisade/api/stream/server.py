"""The stream port: accepts connections, sends WELCOME, and closes connections that send no HELLO."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from palisade.api.permission_lookups import Lookups, lookups_of
from palisade.api.services import NodeServices
from palisade.api.stream.calls import Calls
from palisade.api.stream.connection import StreamConnection
from palisade.api.stream.lease_port import LeasePort
from palisade.api.stream.session_auth import SessionAuth
from palisade.base.connection_limit import ConnectionLimit
from palisade.base.log_rate_limit import LogLimit
from palisade.base.wrong_port import ClientProtocol, advice
from palisade.service.ports import own_addresses
from palisade.wire.stream_frames import FRAME_BYTES_EXTRA, PROTOCOL

log = logging.getLogger(__name__)

HELLO_TIMEOUT_S = 10.0
SWEEP_S = 1.0
LEADER_POLL_S = 0.1
DRAIN_S = 2.0


class StreamServer:
    """`cluster` is the name of the cluster. Runs from `start` to `close`."""

    def __init__(
        self,
        services: NodeServices,
        cluster: str,
        *,
        hello_timeout_s: float = HELLO_TIMEOUT_S,
        room: ConnectionLimit | None = None,
        lease_port: LeasePort | None = None,
    ) -> None:
        """`lease_port`: of a member, which grants leases while it leads."""
        self._authorizer = services.authorizer
        self._lookups: Lookups = lookups_of(services)
        self.service = services.key_values
        self.lease_port = lease_port
        self.room = room or ConnectionLimit(self.service.metrics)
        self.calls = Calls(services, cluster)
        self.connections: dict[StreamConnection, None] = {}
        """In the order in which they were accepted, which is the order in which they are closed."""
        self.frame_bytes_max = self.service.store.limits.request_bytes_max + FRAME_BYTES_EXTRA
        self._cluster = cluster
        self._hello_timeout_s = hello_timeout_s
        self._misdirected = LogLimit()
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._leader: str | None = None
        self._poller: asyncio.TimerHandle | None = None

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises OSError if the port cannot be bound."""
        self.loop = asyncio.get_running_loop()
        self._server = await self.loop.create_server(lambda: StreamConnection(self), host, port, backlog=1024)
        self._sweep()
        self._poll_leader()

    @property
    def port(self) -> int:
        sockets = self._server.sockets if self._server else ()
        return int(sockets[0].getsockname()[1]) if sockets else 0

    def now(self) -> float:
        return self.loop.time()

    def misdirected(self, what: ClientProtocol) -> str:
        text = advice(what, "stream", own_addresses(self.service.group))
        line = self._misdirected.admit(f"refused a client: {text}", self.now())
        if line is not None:
            log.warning("%s", line)
        return text

    def session_auth(self, transport: asyncio.Transport | None, run: Callable[[Any], Any]) -> SessionAuth | None:
        """For a connection that has sent HELLO; None where authorization is off."""
        if self._authorizer is None:
            return None
        peer = transport.get_extra_info("peername") if transport is not None else None
        address = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        return SessionAuth(self._authorizer, self._lookups, address, run)

    def welcome(self) -> dict[str, Any]:
        self._announce_leader()
        member, leader, streams = self._leadership()
        limits = self.service.store.limits
        return {
            "protocol": PROTOCOL,
            "cluster": self._cluster,
            "member": member,
            "leader": leader,
            "streams": streams,
            "limits": {"request_bytes": limits.request_bytes_max, "value_bytes": limits.value_bytes_max},
        }

    def identity(self) -> dict[str, Any]:
        """The response to a client that asks for the cluster before it shows credentials."""
        lineage = self.service.store.lineage
        return {"protocol": PROTOCOL, "cluster": self._cluster, "cluster_id": lineage.cluster_id}

    def _leadership(self) -> list[Any]:
        group = self.service.group
        streams = {each.id: each.addresses["stream"] for each in group.members.members if "stream" in each.addresses}
        return [group.status().member, group.leader, streams]

    def _poll_leader(self) -> None:
        self._announce_leader()
        self._poller = self.loop.call_later(LEADER_POLL_S, self._poll_leader)

    def _announce_leader(self) -> None:
        """If the leader has changed, notify clients: they follow the leader, or leave a node without one."""
        leader = self.service.group.leader
        if leader != self._leader:
            self._leader = leader
            leadership = self._leadership()
            for connection in list(self.connections):
                connection.send_leader(leadership)

    async def close(self) -> None:
        """Stop listening, finish pending requests, then close every connection."""
        for timer in (self._sweeper, self._poller):
            if timer is not None:
                timer.cancel()
        if self._server is not None:
            self._server.close()
        idle = [asyncio.ensure_future(connection.wait_idle()) for connection in self.connections]
        if idle:
            _, late = await asyncio.wait(idle, timeout=DRAIN_S)
            for task in late:
                task.cancel()
        for connection in list(self.connections):
            connection.close()
        await asyncio.sleep(0)
        for connection in list(self.connections):
            connection.abort()

    def _sweep(self) -> None:
        now = self.now()
        for connection in list(self.connections):
            if not connection.greeted and now - connection.since > self._hello_timeout_s:
                connection.refuse(f"no HELLO came within {self._hello_timeout_s:g} s")
        self._sweeper = self.loop.call_later(SWEEP_S, self._sweep)
