"""An event loop in a thread of its own, for blocking callers of coroutines.

Every call ends: with its result, with its error, or, if the thread ends first, with `ClientClosed`. A call whose caller
is interrupted (Ctrl-C) is cancelled. Not usable after a fork: the child has no such thread.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar
from weakref import WeakSet

from palisade.raftgroup.errors import Unavailable

T = TypeVar("T")
LAST_CALLS_S = 1.0
"""How long calls may take to end after the client was closed."""
EXIT_S = 3.0
"""How long the exit of the process waits for the thread."""


class ClientClosed(Unavailable):
    """The client is closed: nothing was sent."""

    retry = False


class LoopThread:
    """`on_start` and `on_stop` run in the thread, before the first call and after the last one was accepted."""

    def __init__(
        self, on_start: Callable[[], Awaitable[object]], on_stop: Callable[[], Awaitable[object]], name: str
    ) -> None:
        self._on_start, self._on_stop = on_start, on_stop
        self._process = os.getpid()
        self._lock = threading.RLock()  # A collected client is stopped in whichever thread collects it.
        self._accepts = True
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()
        _open_threads.add(self)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of the coroutine. Raises what it raises, and ClientClosed."""
        return self.result(self.begin(coroutine))

    def result(self, future: Future[T]) -> T:
        """Wait for a call that has begun; an interrupted wait cancels it."""
        try:
            return future.result()
        except CancelledError:
            raise ClientClosed("the client was closed during the call") from None
        finally:
            future.cancel()
            del future  # It holds the error, whose traceback holds this frame.

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """The coroutine's result to be. Raises ClientClosed; RuntimeError where waiting for it would never end."""
        refusal = self._refusal()
        if refusal is None:
            with self._lock:
                if self._accepts:
                    return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
            refusal = ClientClosed("the client is closed: make a new one")
        coroutine.close()
        raise refusal

    def call(self, function: Callable[[T], object], argument: T) -> None:
        """Call it in the thread, soon; not at all once the client is closed."""
        with self._lock:
            if self._accepts:
                self._loop.call_soon_threadsafe(function, argument)

    def _refusal(self) -> Exception | None:
        if os.getpid() != self._process:
            return RuntimeError("this client was used before a fork: make a new one in the child process")
        if threading.current_thread() is self._thread:
            return RuntimeError("a callback of the client must not call the client: it would wait for itself")
        return None

    def stop(self, timeout_s: float | None = None) -> None:
        """End the thread and wait for it. Does nothing in a child process, whose copy has no thread."""
        if os.getpid() != self._process:
            return
        with self._lock:
            if self._accepts:
                self._accepts = False
                self._loop.call_soon_threadsafe(self._stop.set)
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            with self._lock:
                self._accepts = False
            self._loop.run_until_complete(self._end_calls())
            self._loop.close()

    async def _serve(self) -> None:
        await self._on_start()
        await self._stop.wait()
        await self._on_stop()

    async def _end_calls(self) -> None:
        """What `on_stop` has ended gets its turn; what is left is cancelled."""
        await asyncio.sleep(0)
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        if rest:
            _, rest = await asyncio.wait(rest, timeout=LAST_CALLS_S)
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await self._loop.shutdown_default_executor()


_open_threads: WeakSet[LoopThread] = WeakSet()


@atexit.register
def _stop_all() -> None:
    """Connections are closed in order before the interpreter goes."""
    for each in list(_open_threads):
        each.stop(EXIT_S)
