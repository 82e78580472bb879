"""The stream port of a node that waits for `palisade init`: refuses every client with that reason, then closes.

Without it, a client could not distinguish such a node from one that is not running.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import cast

from palisade.base.frames import encode
from palisade.base.wrong_port import ClientProtocol, advice, protocol_of, refusal
from palisade.wire.error_codes import NOT_INITIALIZED
from palisade.wire.stream_frames import FrameKind

SILENT_S = 10.0
"""A client that sends nothing is disconnected after this time."""
REFUSAL = encode(FrameKind.REFUSED, {"reason": NOT_INITIALIZED, "waits_for_init": True})


class UninitializedPort:
    """Runs from `start` to `close`. `ports`: name -> 'host:port' of this node, for clients of another protocol."""

    def __init__(self, ports: Mapping[str, str]) -> None:
        self.ports = ports
        self.connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises OSError if the port cannot be bound."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), host, port)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.close()


class _Connection(asyncio.Protocol):
    def __init__(self, port: UninitializedPort) -> None:
        self._port = port
        self._transport: asyncio.Transport | None = None
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._port.connections.add(self)
        self._late = asyncio.get_running_loop().call_later(SILENT_S, self.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._port.connections.discard(self)
        if self._late is not None:
            self._late.cancel()

    def data_received(self, data: bytes) -> None:
        what = protocol_of(data)
        if self._transport is not None and what is not None:
            of_stream = what is ClientProtocol.STREAM
            self._transport.write(REFUSAL if of_stream else refusal(what, advice(what, "stream", self._port.ports)))
        self.close()

    def close(self) -> None:
        """Closes once everything written is sent."""
        if self._transport is not None:
            self._transport.close()
