"""A holder that does not read is disconnected at once, and its buffers are freed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from palisade.api.stream.server import StreamServer
from palisade.base.frames import encode
from palisade.fencing.messages import JoinMessage, StageMessage
from palisade.node.fencing import lease_endpoint
from palisade.node.fencing.lease_endpoint import LeaseEndpoint
from palisade.node.fencing.lease_server import HolderConnection
from palisade.wire.fence_messages import FromHolder, pack
from palisade.wire.stream_frames import PROTOCOL, FrameKind
from tests.support.waiting import until

KEPT_BYTES_MAX = 256 * 1024
STAGE = StageMessage(4, 2, 17, 18, ((18, b"k", b"v" * 50_000),))


class Ground:
    """Replaces a `LeaseServer`."""

    def __init__(self) -> None:
        self.connection: HolderConnection | None = None
        self.is_lost = False

    def receive(self, connection: HolderConnection, message: FromHolder) -> None:
        self.connection = connection

    def lost(self, connection: HolderConnection) -> None:
        self.is_lost = True


async def test_holder_that_does_not_read_is_disconnected(stream: StreamServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection was closed after its buffered bytes were sent, so never; further bytes were buffered on top."""
    monkeypatch.setattr(lease_endpoint, "UNSENT_BYTES_MAX", KEPT_BYTES_MAX)
    ground: Any = Ground()
    stream.lease_port = LeaseEndpoint(ground)
    _, writer = await asyncio.open_connection("127.0.0.1", stream.port, limit=1024)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(encode(FrameKind.HELLO, {"protocol": PROTOCOL, "client": "test"}))
    writer.write(encode(FrameKind.FENCE, pack(JoinMessage(2, 20))))
    await until(lambda: ground.connection is not None)
    for _ in range(1000):
        ground.connection.send(STAGE)
        await asyncio.sleep(0)
        if ground.is_lost:
            break
    writer.close()
    assert ground.is_lost
