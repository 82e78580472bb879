"""FENCE frames on the stream port: the connection of one lease holder, at the member that it has connected to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from palisade.node.fencing.lease_server import HolderConnection, LeaseServer
from palisade.wire.fence_messages import FROM_HOLDER, BadMessage, FenceFrames, FromLeader, unpack
from palisade.wire.stream_frames import FrameKind

UNSENT_BYTES_MAX = 64 * 1024 * 1024
"""A holder that does not read is disconnected beyond this; its lease expires by itself."""


class LeaseEndpoint:
    """`open` is called for each connection that sends a FENCE frame."""

    def __init__(self, lease_server: LeaseServer) -> None:
        self.lease_server = lease_server
        self._frames = FenceFrames(FrameKind.FENCE)

    def open(
        self,
        write: Callable[[bytes], None],
        unsent: Callable[[], int],
        close: Callable[[], None],
        abort: Callable[[], None],
    ) -> LeaseVisit:
        """`close` flushes unsent bytes first, which never ends for a holder that does not read."""

        def send(message: FromLeader) -> None:
            write(self._frames.of(message))
            if unsent() > UNSENT_BYTES_MAX:
                abort()

        return LeaseVisit(self.lease_server, HolderConnection(send, close))


class LeaseVisit:
    def __init__(self, lease_server: LeaseServer, connection: HolderConnection) -> None:
        self._lease_server, self._connection = lease_server, connection

    def receive(self, body: Any) -> None:
        """Raises BadMessage."""
        message = unpack(body)
        if not isinstance(message, FROM_HOLDER):
            raise BadMessage("not a message of a lease holder")
        self._lease_server.receive(self._connection, message)

    def lost(self) -> None:
        self._lease_server.lost(self._connection)
