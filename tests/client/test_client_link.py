"""A connection of the client, without a node."""

from __future__ import annotations

import asyncio
from typing import Any

from palisade.base.frames import encode
from palisade.client.connection import ClientConnection
from palisade.wire.stream_frames import FrameKind


async def test_welcome_after_the_greeting_timed_out_is_dropped() -> None:
    """Seen once on a busy machine, with a deadline of 0.3 s: it was taken for a frame of a watch, with a traceback."""
    frames: list[tuple[int, Any]] = []
    link = ClientConnection(asyncio.get_running_loop(), lambda kind, body: frames.append((kind, body)))
    link._welcome.cancel()
    link.data_received(encode(FrameKind.WELCOME, {"protocol": 1}) + encode(FrameKind.PROGRESS, [1, 7]))
    assert frames == [(FrameKind.PROGRESS, [1, 7])]
    assert not link.closed.done()


class FakeTransport(asyncio.Transport):
    """Counts what is sent."""

    sent = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += 1


async def test_node_is_reported_as_silent_half_a_second_after_a_ping_without_response() -> None:
    """Issue 16: a watch at a frozen node said nothing for 4.6 s."""
    link = ClientConnection(asyncio.get_running_loop(), lambda kind, body: None)
    transport = FakeTransport()
    link.connection_made(transport)
    began = link.last_heard = 64.0  # so that the sums below have no rounding error at their limits

    def look(after_s: float, *, awaited: bool = True) -> tuple[int, str | None, bool]:
        dead = link.is_dead(began + after_s, awaited=awaited)
        return transport.sent, link.silence(began + after_s), dead

    assert look(0.9) == (0, None, False)
    assert look(1.0) == (1, None, False)
    assert look(1.4) == (1, None, False)
    assert look(1.5) == (1, "has sent nothing for 1.5 s", False)
    assert look(4.9) == (1, "has sent nothing for 4.9 s", False)
    assert look(5.1) == (1, "has sent nothing for 5.1 s", True)


async def test_response_to_a_ping_ends_the_silence() -> None:
    link = ClientConnection(asyncio.get_running_loop(), lambda kind, body: None)
    link.connection_made(FakeTransport())
    began = link.last_heard = 64.0  # so that the sums below have no rounding error at their limits
    link.is_dead(began + 1.0, awaited=True)
    assert link.silence(began + 2.0) == "has sent nothing for 2.0 s"
    link.last_heard = began + 2.1
    assert link.silence(began + 2.2) is None
    assert not link.is_dead(began + 2.2, awaited=True)


async def test_client_that_was_paused_itself_gives_the_node_time_to_respond() -> None:
    """Its own event loop was blocked for a minute: what the node sent meanwhile has not been read yet."""
    link = ClientConnection(asyncio.get_running_loop(), lambda kind, body: None)
    link.connection_made(FakeTransport())
    began = link.last_heard = 64.0  # so that the sums below have no rounding error at their limits
    assert [link.is_dead(began + after_s, awaited=True) for after_s in (60.0, 60.1, 63.9)] == [False] * 3
    assert link.silence(began + 60.1) is None
    link.last_heard = began + 63.95
    assert not link.is_dead(began + 70, awaited=True)
    assert link.is_dead(began + 74.1, awaited=True)
