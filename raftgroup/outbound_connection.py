"""The sending end: this node dials a member, keeps the connection, and dials again when it is lost."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Any, ClassVar, Protocol

from palisade.base.network_reason import reason_of
from palisade.raftgroup.handshake import HELLO, PING, PONG, REFUSE, HandshakeRefused, hello, read_hello, read_reason
from palisade.raftgroup.peer_connection import Frames, Hub, PeerConnection
from palisade.raftgroup.peer_state import PeerEvent, PeerState
from palisade.raftgroup.ports import Random


class DiallingHub(Hub, Protocol):
    def can_send(self, connection: Dialled) -> None:
        """The member has greeted: messages can be sent to it."""
        ...


class Dialled(PeerConnection):
    """`finished` is done when the connection is lost. `greeting`: of the other side, once it was accepted."""

    def __init__(self, hub: DiallingHub, member: str) -> None:
        super().__init__(hub, hub.limits.queued_bytes_max)
        self._dialling_hub = hub
        self.member = member
        self.greeting: dict[str, Any] = {}
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pinged_at = hub.now()
        self._queued_before = 0

    def began(self) -> None:
        self.send(self._hub.encoder.encode(HELLO, hello(self._hub.receiver.greeting())))
        self.flush()

    def _on_pong(self, body: Any) -> None:
        """Does nothing: the time of its arrival was recorded already."""

    def _on_refuse(self, body: Any) -> None:
        reason = read_reason(body)
        self.close(f"it refuses this node: {reason}")
        self._hub.receiver.on_refused(self.member, reason)

    def _on_hello(self, body: Any) -> None:
        try:
            member, greeting = read_hello(body)
            reason = self._hub.receiver.greet(greeting)
            if reason is None and member != self.member:
                reason = f"{member} answers at the address of {self.member}: check the addresses of both"
            if reason is not None:
                raise HandshakeRefused(reason)
        except HandshakeRefused as refusal:
            self.send(self._hub.encoder.encode(REFUSE, str(refusal)))
            self.close(f"refused: {refusal}")
            return
        self.greeting = greeting
        self.moved(PeerEvent.GREETED)
        self._dialling_hub.can_send(self)

    def tick(self, now: float) -> None:
        queued, before = self.queued_bytes, self._queued_before
        self._queued_before = queued
        if queued < before:
            self.heard_at = now
        super().tick(now)
        if self.state is PeerState.OPEN and now - self._pinged_at >= self._hub.limits.ping_interval_s:
            self._pinged_at = now
            self.send(self._hub.encoder.encode(PING, None))

    def abandon(self) -> None:
        """The connection is no longer needed. uvloop does not report the loss of a connection that is being
        established.
        """
        self.abort("given up")
        self.connection_lost(None)

    def ended(self) -> None:
        if not self.finished.done():
            self.finished.set_result(None)

    frames: ClassVar[Frames] = {
        PeerState.GREETING: {HELLO: _on_hello, REFUSE: _on_refuse},
        PeerState.OPEN: {PONG: _on_pong},
    }


class Dialler:
    """Keeps one member connected until it is stopped. A failure is logged once, not at every attempt."""

    def __init__(self, hub: DiallingHub, member: str, address: str, random: Random, tls: ssl.SSLContext | None) -> None:
        self._hub = hub
        self.member = member
        self.address = address
        self._random = random
        self._tls = tls
        self._connection: Dialled | None = None
        self._logged = ""
        self._is_up = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"dial {member}")

    async def stop(self, reason: str) -> None:
        self.stop_dialling(reason)
        await asyncio.wait([self._task])

    def is_up(self) -> None:
        """The member has dialled this node, so it is reachable: dial again without waiting. Without a connection to it
        its messages cannot be answered, and an election may depend on the answers."""
        self._is_up.set()

    def stop_dialling(self, reason: str) -> None:
        """Dial no more; the connection ends when its last frames have left."""
        self._task.cancel()
        if self._connection is not None:
            self._connection.close(reason)

    @property
    def is_over(self) -> bool:
        return self._task.done()

    async def _run(self) -> None:
        limits = self._hub.limits
        wait_s = limits.redial_min_s
        while True:
            self._is_up.clear()
            reason, greeted = await self._connect()
            if greeted:
                wait_s, self._logged = limits.redial_min_s, ""
            self._log_once(reason)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s * (0.5 + self._random.random() / 2)):
                    await self._is_up.wait()
            wait_s = min(2 * wait_s, limits.redial_max_s)

    async def _connect(self) -> tuple[str, bool]:
        """One connection from beginning to end: why it ended, and whether it was used."""
        connection = Dialled(self._hub, self.member)
        try:
            host, port = split_address(self.address)
            async with asyncio.timeout(self._hub.limits.handshake_timeout_s):
                await asyncio.get_running_loop().create_connection(lambda: connection, host, port, ssl=self._tls)
        except TimeoutError:
            connection.abandon()
            return f"no connection within {self._hub.limits.handshake_timeout_s:g} s", False
        except asyncio.CancelledError:
            connection.abandon()
            raise
        except (OSError, ValueError) as error:
            return reason_of(error), False
        self._connection = connection
        await connection.finished
        self._connection = None
        return connection.end_reason, bool(connection.greeting)

    def _log_once(self, reason: str) -> None:
        if reason != self._logged:
            self._logged = reason
            self._hub.warn(f"no connection to {self.member} at {self.address}, retrying: {reason}", self.member)


def split_address(address: str) -> tuple[str, int]:
    """'host:port' or '[ipv6]:port'. Raises ValueError."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{address!r} is not an address of the form host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)
