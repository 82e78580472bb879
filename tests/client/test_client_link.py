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
