"""SWIM over UDP: one socket, one timer. What arrives and is no message of this cluster is dropped and counted.

A stranger (another cluster, another version) that asks for the roster is told so, in less than it has sent; nobody else
is answered. Host names of seeds are looked up anew each time they are used, so a seed may move.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import Counter
from collections.abc import Callable
from typing import Any

from base.address import Address, AddressError
from node.swim.protocol import Change, Swim
from node.swim.wire import Drop, Dropped, Kind, Stranger, Wire

log = logging.getLogger(__name__)

SourceAddress = tuple[Any, ...]
LEAVE_S = 0.05
"""How long a socket stays open for the good-bye to leave."""


class SwimSocket(asyncio.DatagramProtocol):
    """Runs from `start` to `close`. `on_change` hears of every change, in the turn of the loop that brings it."""

    def __init__(self, swim: Swim, cluster: str, on_change: Callable[[Change], None]) -> None:
        self.swim = swim
        self.received = 0
        self.sent = 0
        self.send_errors = 0
        self.dropped: Counter[Drop] = Counter()
        self.strangers: dict[str, str] = {}
        """Seeds that belong to something else, and what they say."""
        self._cluster = cluster
        self._wire = Wire(cluster)
        self._on_change = on_change
        self._transport: asyncio.DatagramTransport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._resolving: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> None:
        """Listen and take part. Raises OSError when the port can't be had."""
        self._loop = asyncio.get_running_loop()
        transport, _ = await self._loop.create_datagram_endpoint(lambda: self, local_addr=(host, port))
        self._transport = transport
        self._tick()

    @property
    def port(self) -> int:
        """0 before the start."""
        return int(self._transport.get_extra_info("sockname")[1]) if self._transport is not None else 0

    async def leave(self) -> None:
        """Say good-bye, so that nobody has to find out."""
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

    # The loop's side.

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
            self._answer_stranger(dropped, addr)
            return
        address = str(Address(addr[0], addr[1]))
        if isinstance(message, Stranger):
            if self.strangers.get(address) != message.reason:
                log.warning("%s takes no part in this cluster: %s", address, message.reason)
                self.strangers = dict([*self.strangers.items(), (address, message.reason)][-8:])
            return
        self.swim.receive(message, address, self._loop.time())
        self._flush()

    def error_received(self, exc: Exception) -> None:
        """The other side has closed its port, or the network is gone: the failure detector finds out by itself."""
        self.send_errors += 1

    def _answer_stranger(self, dropped: Dropped, addr: SourceAddress) -> None:
        """Only to who asks for a roster, which is what a node that starts does."""
        if dropped.kind != Kind.DIGEST or self._transport is None:
            return
        if dropped.reason is Drop.OTHER_CLUSTER:
            reason = f"this node belongs to cluster {self._cluster}"
        elif dropped.reason is Drop.OTHER_VERSION:
            reason = f"this node does not speak protocol version {dropped.version}"
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
