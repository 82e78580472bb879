"""The stream of one node in memory, served by a thread of its own: for clients that block."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from palisade.api.services import NodeServices
from palisade.api.stream.server import StreamServer
from palisade.client.loop_thread import LoopThread
from palisade.service.catalog import Catalog
from palisade.service.key_values import KeyValues
from tests.support.fake_group import FakeGroup, fake_group
from tests.support.waiting import until

T = TypeVar("T")
BLOCKED_S = 0.2
"""Long enough for a thread to reach its wait. If it has not, a test still passes, by another path."""


class ThreadedNode:
    """`address` of the stream. `do` runs a function in the thread of the node."""

    def __init__(self) -> None:
        self.group: FakeGroup = fake_group()
        self.address = ""
        self._started = threading.Event()
        self._running: asyncio.Task[None] | None = None
        self._server: StreamServer | None = None
        self._thread = LoopThread(self._start, self._stop, "node")
        self._started.wait(10)

    async def _start(self) -> None:
        service = KeyValues(self.group, self.group.store, deadline_s=2.0)
        catalog = Catalog(service, "n1")
        self._running = asyncio.create_task(catalog.runner.run())
        self._server = StreamServer(NodeServices(service, catalog=catalog), "demo")
        await self._server.start("127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.port}"
        self._started.set()

    async def _stop(self) -> None:
        if self._running is not None and self._server is not None:
            self._running.cancel()
            await self._server.close()

    def do(self, function: Callable[[], T]) -> T:
        async def call() -> T:
            return function()

        return self._thread.run(call())

    def until_submitted(self, count: int) -> None:
        """Wait until so many commands have arrived at the group."""
        self._thread.run(until(lambda: self.group.submitted >= count))

    def connections(self) -> int:
        """How many connections clients have open."""
        return self.do(lambda: len(self._server.connections) if self._server else 0)

    def close(self) -> None:
        self._thread.stop()


@contextmanager
def threaded_node() -> Iterator[ThreadedNode]:
    node = ThreadedNode()
    try:
        yield node
    finally:
        node.close()


def later(function: Callable[[], object], delay_s: float = BLOCKED_S) -> threading.Timer:
    """In another thread."""
    timer = threading.Timer(delay_s, function)
    timer.start()
    return timer


def interrupt() -> None:
    """The effect of Ctrl-C on the main thread."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def unused_address() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"
