"""What a node keeps for whoever does not read is bounded, where the stream port has told it that one does not.

As long as a connection is told to pause it takes nothing more from its client, each watch of it is told at most what
it was waiting for already, and a holder for whom more waits than is allowed is sent nothing more. The slow watcher for
whom a server keeps all that happens is etcd #17529.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from palisade.api.stream.connection import StreamConnection
from palisade.node.fencing import lease_endpoint as door
from palisade.wire.stream_frames import FrameKind
from tests.sim.sockets import Transport
from tests.sim.world import Checker, World

OF_WATCHES = (FrameKind.EVENTS, FrameKind.PROGRESS)


class BackPressure(Checker):
    name = "back-pressure"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._told: dict[tuple[Transport, int], int] = {}
        """In which pause of its connection a watch was told something last."""

    @contextmanager
    def looking(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name, look in (("_write", self._written), ("_write_bytes", self._sent), ("data_received", self._taken)):
                patch.setattr(StreamConnection, name, self._behind(getattr(StreamConnection, name), look))
            yield

    @staticmethod
    def _behind(function: Callable[..., Any], look: Callable[..., None]) -> Callable[..., Any]:
        """`look` only where the connection is told to pause."""

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
        if self._told.get(watch) == transport.pauses:
            self.fail(f"a watch is told more and more by {transport.loop.name}, and its client does not read")
        self._told[watch] = transport.pauses

    def _sent(self, transport: Transport, _: bytes) -> None:
        if transport.get_write_buffer_size() > door.UNSENT_BYTES_MAX:
            self.fail(f"{transport.loop.name} keeps more and more for a holder that does not read")

    def _taken(self, transport: Transport, _: bytes) -> None:
        self.fail(f"{transport.loop.name} goes on to take requests of a client that does not read")
