"""The memory that a node uses for a client that does not read is bounded, once the stream port was asked to pause.

As long as a connection is paused it accepts no more requests from its client, each of its watches sends at most what
was already pending, and a lease holder with too many unsent bytes gets nothing more. A server that buffers all events
for a slow watcher is etcd #17529.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from palisade.api.stream.connection import StreamConnection
from palisade.node.fencing import lease_endpoint
from palisade.wire.stream_frames import FrameKind
from tests.sim.sockets import Transport
from tests.sim.world import Checker, World

OF_WATCHES = (FrameKind.EVENTS, FrameKind.PROGRESS)


class BackPressure(Checker):
    name = "back-pressure"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._reported: dict[tuple[Transport, int], int] = {}
        """The pause of its connection in which a watch sent its last event."""

    @contextmanager
    def looking(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name, look in (("_write", self._written), ("_write_bytes", self._sent), ("data_received", self._taken)):
                patch.setattr(StreamConnection, name, self._behind(getattr(StreamConnection, name), look))
            yield

    @staticmethod
    def _behind(function: Callable[..., Any], look: Callable[..., None]) -> Callable[..., Any]:
        """`look` only while the connection is paused."""

        def looked_at(connection: Any, *arguments: Any) -> Any:
            transport = connection._transport
            if transport is not None and transport.pauses_writer:
                look(transport, *arguments)
            return function(connection, *arguments)

        return looked_at

    def _written(self, transport: Transport, kind: int, body: Any) -> None:
        if kind not in OF_WATCHES:
            return
        watch = transport, body[0]
        if self._reported.get(watch) == transport.pauses:
            self.fail(f"{transport.loop.name} keeps sending to a watch whose client does not read")
        self._reported[watch] = transport.pauses

    def _sent(self, transport: Transport, _: bytes) -> None:
        if transport.get_write_buffer_size() > lease_endpoint.UNSENT_BYTES_MAX:
            self.fail(f"{transport.loop.name} buffers more and more for a holder that does not read")

    def _taken(self, transport: Transport, _: bytes) -> None:
        self.fail(f"{transport.loop.name} continues to accept requests of a client that does not read")
