"""One TCP connection between two members: its states, frames out, frames in, and its end.

Frames sent in one turn of the event loop leave in one write. The queue for a peer that does not read is bounded; a peer
beyond the bound is disconnected, because everything here can be sent again. Invalid input ends the connection with one
line in the log, never with an exception.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from palisade.base.frames import FRAME_BYTES_MAX, Encoder, FrameError, FrameParser
from palisade.base.network_reason import reason_of
from palisade.base.protocol_state import next_state
from palisade.raftgroup.peer_state import TRANSITIONS, PeerEvent, PeerState
from palisade.raftgroup.ports import MessageReceiver

Frames = Mapping[PeerState, Mapping[int, Callable[[Any, Any], None]]]
"""The kinds of frames that an end accepts in each state, with the method that handles each. Other states have none."""


@dataclass(frozen=True, slots=True)
class TransportLimits:
    """`idle_timeout_s`: after this time without a byte the other side is considered dead. `strangers_max`: maximum
    accepted connections that have not greeted yet."""

    handshake_timeout_s: float = 5.0
    idle_timeout_s: float = 5.0
    ping_interval_s: float = 1.0
    redial_min_s: float = 0.1
    redial_max_s: float = 2.0
    close_timeout_s: float = 1.0
    first_frame_bytes_max: int = 64 * 1024
    frame_bytes_max: int = FRAME_BYTES_MAX
    queued_bytes_max: int = 64 * 1024 * 1024
    answers_bytes_max: int = 1024 * 1024
    strangers_max: int = 256

    def __post_init__(self) -> None:
        if self.ping_interval_s * 2 > self.idle_timeout_s:
            raise ValueError(
                f"idle_timeout_s ({self.idle_timeout_s}) must be at least two ping_interval_s ({self.ping_interval_s})"
            )

    @property
    def tick_s(self) -> float:
        return min(self.handshake_timeout_s, self.idle_timeout_s, self.ping_interval_s) / 4


class Hub(Protocol):
    """The interface of a connection to its transport."""

    limits: TransportLimits
    encoder: Encoder
    receiver: MessageReceiver

    def now(self) -> float: ...
    def warn(self, line: str, member: str = "") -> None:
        """Log it. `member`: the one that it is about."""
        ...

    def opened(self, connection: PeerConnection) -> None: ...
    def lost(self, connection: PeerConnection) -> None: ...
    def flush_soon(self, flush: Callable[[], None]) -> None: ...


class PeerConnection(asyncio.Protocol):
    """The common part of both ends. The ends differ in their greeting and in the frames that they accept."""

    frames: ClassVar[Frames]

    def __init__(self, hub: Hub, queued_bytes_max: int) -> None:
        self._hub = hub
        self._queued_bytes_max = queued_bytes_max
        self._parser = FrameParser(hub.limits.first_frame_bytes_max)
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self.transport: asyncio.Transport | None = None
        self.state = PeerState.CONNECTING
        self.end_reason = "the other side closed the connection"
        self.opened_at = self.heard_at = hub.now()

    # Implemented by the two ends.

    def began(self) -> None:
        """The connection is established; nothing was exchanged yet."""

    def take(self, kind: int, body: Any) -> None:
        """One frame has arrived."""
        handler = self.frames[self.state].get(kind)
        if handler is None:
            raise FrameError(f"unexpected frame of kind {kind}")
        handler(self, body)

    def ended(self) -> None:
        """Called once, after the last frame."""

    def tick(self, now: float) -> None:
        """Called periodically: sends pings, or gives up."""
        limits = self._hub.limits
        if self.closing:
            if now - self.heard_at > limits.idle_timeout_s:
                self.abort(self.end_reason)
        elif self.state is not PeerState.OPEN:
            if now - self.opened_at > limits.handshake_timeout_s:
                self.abort(f"no greeting within {limits.handshake_timeout_s:g} s")
        elif now - self.heard_at > limits.idle_timeout_s:
            self.abort(f"nothing was received for {limits.idle_timeout_s:g} s")

    def reset_idle_timer(self, now: float) -> None:
        """Call after a suspension of this process, in which it could not receive."""
        self.opened_at = self.heard_at = now

    def moved(self, event: PeerEvent) -> None:
        self.state = next_state(TRANSITIONS, self.state, event)

    @property
    def closing(self) -> bool:
        """Nothing more can be sent."""
        return self.state >= PeerState.CLOSING

    @property
    def address(self) -> str:
        peer = self.transport.get_extra_info("peername") if self.transport else None
        return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "unknown address"

    # Output.

    def send(self, frame: bytes) -> bool:
        """Queue a frame. False if the connection has ended, perhaps because of this frame."""
        if self.state >= PeerState.CLOSING:
            return False
        if not self._waiting:
            self._hub.flush_soon(self.flush)
        self._waiting.append(frame)
        self._waiting_bytes += len(frame)
        return self._waiting_bytes <= self._queued_bytes_max or self._give_up()

    def flush(self) -> None:
        """Pass all queued frames to the socket."""
        waiting, transport = self._waiting, self.transport
        if not waiting or transport is None or self.closing:
            return
        self._waiting = []
        self._waiting_bytes = 0
        transport.writelines(waiting)
        if transport.get_write_buffer_size() > self._queued_bytes_max:
            self._give_up()

    @property
    def queued_bytes(self) -> int:
        return self._waiting_bytes + (self.transport.get_write_buffer_size() if self.transport else 0)

    def _give_up(self) -> bool:
        self.abort(f"{self.queued_bytes} bytes are queued for it, {self._queued_bytes_max} are allowed")
        return False

    def close(self, reason: str) -> None:
        """End the connection after sending the queued frames."""
        self.flush()
        if not self.closing:
            self.end_reason = reason
            self.heard_at = self._hub.now()
        self.moved(PeerEvent.CLOSE)
        if self.transport is not None:
            self.transport.close()

    def abort(self, reason: str) -> None:
        """End the connection now."""
        if not self.closing:
            self.end_reason = reason
        self.moved(PeerEvent.CLOSE)
        self._waiting.clear()
        self._waiting_bytes = 0
        if self.transport is not None:
            self.transport.abort()

    # Input: called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.opened_at = self.heard_at = self._hub.now()
        _notice_death(transport.get_extra_info("socket"), self._hub.limits.idle_timeout_s)
        self._hub.opened(self)
        self.moved(PeerEvent.CONNECTED)
        if self.closing:
            self.abort(self.end_reason)
        else:
            self.began()

    def data_received(self, data: bytes) -> None:
        self.heard_at = self._hub.now()
        try:
            for kind, body in self._parser.feed(data):
                if self.state >= PeerState.CLOSING:
                    return
                self.take(kind, body)
        except FrameError as error:
            self.abort(str(error))

    def connection_lost(self, error: Exception | None) -> None:
        if not self.closing:
            self.end_reason = reason_of(error) if error else self.end_reason
        self.moved(PeerEvent.LOST)
        self._waiting.clear()
        self._waiting_bytes = 0
        self._hub.lost(self)
        self.ended()


def _notice_death(sock: Any, timeout_s: float) -> None:
    """Let the kernel disconnect a peer that does not acknowledge, as far as this system supports it."""
    if sock is None:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, int(timeout_s)))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, max(1, int(timeout_s * 1000)))
