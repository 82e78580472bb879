"""The embedded store for programs that do not use asyncio: `LocalStore` with blocking calls."""

from __future__ import annotations

from collections.abc import Callable

from palisade.client.loop_thread import LoopThread
from palisade.client.sync_api import SyncApi
from palisade.node.local_store import LocalStore


class SyncLocalStore(SyncApi):
    """Created by `palisade.open`. Threads may share it: their writes share fsyncs.

    A process that was forked after the store was opened cannot use it: calls raise RuntimeError.
    """

    def __init__(self, create: Callable[[], LocalStore]) -> None:
        """`create` is called in the thread of the event loop. Its errors, and those of the start, are raised here."""
        self._life = _Life(create)
        self._thread = LoopThread(_nothing, self._life.end, "store", "open it again")
        try:
            self._api = self._thread.run(self._life.begin())
        except BaseException:
            self._thread.stop()
            raise

    def close(self) -> None:
        """End waiting calls and watches, write everything, release the folder. May be called again.

        Raises OSError if the store could not be written: the journal has every acknowledged write.
        """
        self._thread.stop()
        self._life.check()

    def _running(self) -> LoopThread:
        return self._thread


class _Life:
    """Start and stop of a store, in the thread of its event loop."""

    def __init__(self, create: Callable[[], LocalStore]) -> None:
        self._create = create
        self._store: LocalStore | None = None
        self._failure: Exception | None = None

    async def begin(self) -> LocalStore:
        self._store = store = self._create()
        await store.start()
        return store

    async def end(self) -> None:
        """Keeps an error for `check`, because the thread has no caller to raise it to."""
        if self._store is None:
            return
        try:
            await self._store.stop()
        except Exception as error:
            self._failure = error

    def check(self) -> None:
        """Raises the error of `end`, once."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


async def _nothing() -> None:
    """The store starts by a call, whose errors reach the caller."""
