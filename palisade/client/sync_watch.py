"""A watch as a blocking iterator.

No event is lost or repeated when a timeout or Ctrl-C ends a wait: the next call returns it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Iterator

from palisade.base.interval import check_interval
from palisade.client.client_closed import ClientClosed
from palisade.client.loop_thread import LoopThread
from palisade.client.watch_handle import WatchHandle
from palisade.metastore.results import RevisionEvents


class SyncWatch:
    """Iterate it with `for`. Close it, or leave its `with`, after use.

    Each item holds all events of one revision that match the watch. An item without events is a progress notification:
    everything up to its revision was delivered. Raises Compacted when compaction overtakes it. Threads may share it:
    each item goes to one of them. `close` from any thread ends the iteration in all.
    """

    def __init__(self, watch: WatchHandle, thread: LoopThread, client: object) -> None:
        """`client`: kept alive as long as its watch is in use."""
        self._client = client
        self._watch = watch
        self._thread = thread
        self._turn = threading.Lock()
        self._taken: deque[RevisionEvents] = deque()
        self._delivered = 0
        self._closed = False

    @property
    def next_revision(self) -> int:
        """The `start_revision` of another watch that continues after the delivered events; 0 if none is known yet."""
        if self._delivered:
            return self._delivered
        taken = next(iter(self._taken), None)
        return self._watch.next_revision if taken is None else taken.revision

    @property
    def trouble(self) -> str | None:
        """Why no events can arrive at the moment (no connection, no leader); None if silence means no change. The
        watch continues by itself."""
        return self._thread.run(self._look())

    def __iter__(self) -> Iterator[RevisionEvents]:
        return self

    def __next__(self) -> RevisionEvents:
        return self.next()

    def next(self, timeout_s: float | None = None) -> RevisionEvents:
        """The next item. Raises TimeoutError after `timeout_s`, StopIteration if the watch is closed."""
        check_interval("timeout_s", timeout_s)
        end = None if timeout_s is None else time.monotonic() + timeout_s
        if not self._turn.acquire(timeout=-1 if timeout_s is None else max(0.0, timeout_s)):
            raise TimeoutError("no event arrived in time")
        try:
            if not self._taken and not self._closed:
                self._wait(timeout_s if end is None else max(0.0, end - time.monotonic()))
            if self._closed or not self._taken:
                raise StopIteration
            item = self._taken.popleft()
            self._delivered = item.revision + 1
            return item
        finally:
            self._turn.release()

    def _wait(self, timeout_s: float | None) -> None:
        try:
            self._thread.run(self._take(timeout_s))
        except TimeoutError:
            raise TimeoutError("no event arrived in time") from None
        except ClientClosed:
            if not self._closed:
                raise

    async def _take(self, timeout_s: float | None) -> None:
        """Nothing is awaited between the arrival of an item and its append, so none can be lost."""
        try:
            async with asyncio.timeout(timeout_s):
                self._taken.append(await anext(self._watch))
        except StopAsyncIteration:
            return

    async def _look(self) -> str | None:
        return self._watch.trouble

    def close(self) -> None:
        """End the watch, also for threads that wait in `next`. May be called again, and after closing the client."""
        if self._closed:
            return
        self._closed = True
        try:
            self._thread.run(self._watch.aclose())
        except ClientClosed:
            return

    def __enter__(self) -> SyncWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
