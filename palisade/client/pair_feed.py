"""Passes the pairs of a blocking caller to a coroutine in another thread, in order and in batches.

The caller's iterator and `progress` run in the caller's thread: they need not be thread-safe, and they do not block the
event loop. At most `BATCHES` batches are buffered for the coroutine.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from concurrent.futures import Future
from itertools import islice
from typing import Any

from palisade.base.content import Content
from palisade.client.loop_thread import LoopThread

Pair = tuple[Content, Content]
Counted = Callable[[int], None]
BATCH = 256
BATCHES = 4


class PairFeed:
    """For one `put_many`. `progress`: called with how many puts are done."""

    def __init__(self, thread: LoopThread, progress: Counted | None) -> None:
        self._thread = thread
        self._progress = progress
        self._count = self._reported = 0
        self._batches: deque[list[Pair]] = deque()
        self._arrived = asyncio.Event()
        self._room = threading.Semaphore(BATCHES)

    def run(
        self, consume: Callable[[AsyncIterator[Pair], Counted], Coroutine[Any, Any, int]], items: Iterable[Pair]
    ) -> int:
        """The result of `consume`. Raises its errors and those of `items`."""
        future = self._thread.begin(consume(self._pairs(), self._note))
        future.add_done_callback(lambda _: self._room.release())
        try:
            self._feed(future, iter(items))
            return self._thread.result(future)
        except BaseException:
            future.cancel()
            raise
        finally:
            self._report()

    def _feed(self, future: Future[int], items: Iterable[Pair]) -> None:
        while not future.done():
            batch = list(islice(items, BATCH))
            self._room.acquire()
            if future.done():
                return
            self._thread.call(self._take_in, batch)
            self._report()
            if not batch:
                return

    def _report(self) -> None:
        count = self._count
        if self._progress is not None and count != self._reported:
            self._reported = count
            self._progress(count)

    # In the thread of the event loop.

    def _note(self, count: int) -> None:
        self._count = count

    def _take_in(self, batch: list[Pair]) -> None:
        self._batches.append(batch)
        self._arrived.set()

    async def _pairs(self) -> AsyncIterator[Pair]:
        """An empty batch marks the end."""
        while True:
            while not self._batches:
                self._arrived.clear()
                await self._arrived.wait()
            batch = self._batches.popleft()
            if not batch:
                return
            for pair in batch:
                yield pair
            self._room.release()
