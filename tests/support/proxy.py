"""A TCP proxy that a test can cut, mute and open again: for faults between a client and a node."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Proxy:
    """`muted`: nothing passes from the node to the client; those bytes are lost when the connection is cut."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.muted = False
        self.connections = 0

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut()
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def endpoint(self) -> str:
        if self._server is None:
            raise RuntimeError("the proxy is not open")
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """Break every connection."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        node_reader, node_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers |= {writer, node_writer}
        for source, target, answers in ((reader, node_writer, False), (node_reader, writer, True)):
            task = asyncio.ensure_future(self._pass_on(source, target, answers))
            self._tasks.add(task)

    async def _pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, answers: bool) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                if not (answers and self.muted):
                    target.write(data)
                    await target.drain()
        target.close()
