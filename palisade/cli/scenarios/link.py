"""The network in front of one process of a scenario: a relay of its TCP connections that can be cut.

While it is cut, connections stay open but carry nothing, so each end only sees that the other one is silent. A
connection that has lost bytes is useless; it is aborted when the link is restored.
"""

from __future__ import annotations

import asyncio

from palisade.base.address import Address

CHUNK_BYTES = 65_536


class Link:
    """Connections to `address` are relayed to `target`."""

    def __init__(self, address: str, target: str) -> None:
        self.address = address
        self._target = Address.parse(target)
        self._is_cut = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        at = Address.parse(self.address)
        self._server = await asyncio.start_server(self._accept, at.host, at.port)

    def cut(self) -> None:
        self._is_cut = True

    def restore(self) -> None:
        self._is_cut = False
        self._abort()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._abort()

    def _abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            self._writers.add(writer)
            return
        try:
            there = await asyncio.open_connection(self._target.host, self._target.port)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, there[1]}
        self._writers |= ends
        try:
            await asyncio.gather(self._carry(reader, there[1]), self._carry(there[0], writer))
        finally:
            self._writers -= ends

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relays one direction until its end. While the link is cut, the end of a connection is not relayed either."""
        try:
            while data := await reader.read(CHUNK_BYTES):
                if not self._is_cut:
                    writer.write(data)
                    await writer.drain()
        except OSError:
            pass
        if not self._is_cut:
            writer.close()
