"""SWIM over UDP: one socket, one timer. Datagrams that are not valid messages of this cluster are dropped and counted.

A node of another cluster or version that requests the roster gets the reason, in a datagram smaller than its own; other
foreign datagrams are not answered. Host names of seeds are resolved at each use, so the address of a seed may change.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import Counter
from collections.abc import Callable
from typing import Any

from palisade.base.address import Address, AddressError
from palisade.topology.swim.dropped_lines import DroppedLines
from palisade.topology.swim.protocol import Change, Swim
from palisade.topology.swim.wire import Dropped, DropReason, Stranger, SwimMessageKind, Wire

log = logging.getLogger(__name__)

SourceAddress = tuple[Any, ...]
LEAVE_S = 0.05
"""How long the socket stays open after the departure is sent."""


class SwimSocket(asyncio.DatagramProtocol):
    """Runs from `start` to `close`. `on_change` is called for every change, in the loop iteration that caused it."""

    def __init__(self, swim: Swim, cluster: str, on_change: Callable[[Change], None]) -> None:
        self.swim = swim
        self.received = 0
        self.sent = 0
        self.send_errors = 0
        self.dropped: Counter[DropReason] = Counter()
        self.strangers: dict[str, str] = {}
        """Addresses that answered as another cluster or version -> the reason they gave; at most 8."""
        self._cluster = cluster
        self._wire = Wire(cluster)
        self._dropped_lines = DroppedLines(cluster)
        self._on_change = on_change
        self._transport: asyncio.DatagramTransport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._resolving: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> None:
        """Bind the socket and start the protocol. Raises OSError if the port cannot be bound."""
        self._loop = asyncio.get_running_loop()
        transport, _ = await self._loop.create_datagram_endpoint(lambda: self, local_addr=(host, port))
        self._transport = transport
        self._tick()

    @property
    def port(self) -> int:
        """0 before the start."""
        return int(self._transport.get_extra_info("sockname")[1]) if self._transport is not None else 0

    async def leave(self) -> None:
        """Announce the departure, so that no node has to detect it."""
        if self._transport is not None:
            self.swim.leave()
            self._flush()
            await asyncio.sleep(LEAVE_S)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in self._resolving:
            task.cancel()
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    # Callbacks of the event loop.

    def _tick(self) -> None:
        now = self._loop.time()
        due = self.swim.tick(now)
        self._flush()
        self._timer = self._loop.call_later(max(0.001, due - now), self._tick)

    def datagram_received(self, data: bytes, addr: SourceAddress) -> None:
        self.received += 1
        try:
            message = self._wire.decode(data)
        except Dropped as dropped:
            self.dropped[dropped.reason] += 1
            source, ports = str(Address(addr[0], addr[1])), dict(self.swim.own.tags)
            line = self._dropped_lines.line(dropped, data, source, ports, self._loop.time())
            if line is not None:
                log.warning("%s", line)
            self._answer_stranger(dropped, addr)
            return
        address = str(Address(addr[0], addr[1]))
        if isinstance(message, Stranger):
            if self.strangers.get(address) != message.reason:
                log.warning("foreign node at a seed address: address=%s reason=%s", address, message.reason)
                self.strangers = dict([*self.strangers.items(), (address, message.reason)][-8:])
            return
        self.swim.receive(message, address, self._loop.time())
        self._flush()

    def error_received(self, exc: Exception) -> None:
        """A closed remote port or a network failure; the failure detector handles both."""
        self.send_errors += 1

    def _answer_stranger(self, dropped: Dropped, addr: SourceAddress) -> None:
        """Only for a digest, which a starting node sends to its seeds."""
        if dropped.kind != SwimMessageKind.DIGEST or self._transport is None:
            return
        if dropped.reason is DropReason.OTHER_CLUSTER:
            reason = f"this node belongs to cluster {self._cluster}"
        elif dropped.reason is DropReason.OTHER_VERSION:
            reason = f"this node does not support protocol version {dropped.version}"
        else:
            return
        self._transport.sendto(self._wire.encode(Stranger(reason)), addr)

    def _flush(self) -> None:
        outbox, self.swim.outbox = self.swim.outbox, []
        for address, message in outbox:
            self._send(address, self._wire.encode(message))
        changes, self.swim.changes = self.swim.changes, []
        for change in changes:
            self._on_change(change)

    def _send(self, address: str, datagram: bytes) -> None:
        if self._transport is None:
            return
        try:
            target = Address.parse(address)
        except AddressError:
            self.send_errors += 1
            return
        if is_numeric(target.host):
            self._send_to((target.host, target.port), datagram)
        elif len(self._resolving) < 16:
            task = self._loop.create_task(self._send_by_name(target, datagram))
            self._resolving.add(task)
            task.add_done_callback(self._resolving.discard)

    async def _send_by_name(self, target: Address, datagram: bytes) -> None:
        try:
            found = await self._loop.getaddrinfo(target.host, target.port, type=socket.SOCK_DGRAM)
        except OSError:
            self.send_errors += 1
            return
        self._send_to(found[0][4][:2], datagram)

    def _send_to(self, target: tuple[Any, ...], datagram: bytes) -> None:
        if self._transport is None:
            return
        self.sent += 1
        try:
            self._transport.sendto(datagram, target)
        except (OSError, ValueError):
            self.send_errors += 1


def is_numeric(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):
            socket.inet_pton(family, host)
            return True
    return False
