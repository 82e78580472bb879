"""The client of a replicated journal for programs that do not use asyncio: `JournalClient` with blocking calls.

with palisade.SyncJournalClient("orders", ["127.0.0.1:7901", "127.0.0.1:7902"]) as journal:
    number = journal.append(b"an entry")
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from typing import Any, TypeVar

from palisade.client.client_closed import ClientClosed
from palisade.client.loop_thread import LoopThread
from palisade.client.sync_api import documented_as
from palisade.journal.client import READ_BYTES, JournalClient

T = TypeVar("T")


class SyncJournalClient:
    """Threads may share it; their appends are in flight at the same time. Ctrl-C ends a waiting call; the append that
    it interrupts may still be made.

    It connects at its first call. Call `close`, or leave its `with`, after use. A client created before a fork belongs
    to the child if it was not used before; else calls in the child raise RuntimeError.

    The parameters are those of `JournalClient`."""

    def __init__(self, role: str, addresses: Sequence[str], *, timeout_s: float = 10.0) -> None:
        self._client = JournalClient(role, addresses, timeout_s=timeout_s)
        self._opening = threading.Lock()
        self._thread: LoopThread | None = None
        self._closed = False

    def close(self) -> None:
        """End waiting calls with AppendUnknown or ClientClosed, and the connection. May be called again."""
        with self._opening:
            self._closed = True
            thread = self._thread
        if thread is not None:
            thread.stop()

    def __enter__(self) -> SyncJournalClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @documented_as(JournalClient.append)
    def append(self, content: bytes) -> int:
        return self._run(lambda: self._client.append(content))

    @documented_as(JournalClient.append_many)
    def append_many(self, contents: Sequence[bytes]) -> tuple[int, int]:
        return self._run(lambda: self._client.append_many(contents))

    @documented_as(JournalClient.read)
    def read(self, first: int = 1, size: int = READ_BYTES) -> tuple[list[tuple[int, bytes]], int]:
        return self._run(lambda: self._client.read(first, size))

    @documented_as(JournalClient.entries)
    def entries(self, first: int = 1) -> Iterator[tuple[int, bytes]]:
        found: AsyncIterator[tuple[int, bytes]] = self._client.entries(first)

        async def following() -> tuple[int, bytes] | None:
            return await anext(found, None)

        while (entry := self._run(following)) is not None:
            yield entry

    @documented_as(JournalClient.status)
    def status(self) -> list[dict[str, Any]]:
        return self._run(self._client.status)

    def _run(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return self._running().run(call())

    def _running(self) -> LoopThread:
        """The thread of this client; the first call starts it."""
        with self._opening:
            if self._closed:
                raise ClientClosed("the client is closed; create a new one")
            if self._thread is None:
                client = self._client
                thread = LoopThread(client.__aenter__, client.__aexit__)
                weakref.finalize(self, thread.stop, 0.0).atexit = False
                self._thread = thread
            return self._thread
