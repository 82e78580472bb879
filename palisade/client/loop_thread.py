"""An event loop in its own thread, for blocking callers of coroutines.

Every call ends: with its result, with its error, or with `ClientClosed` if the thread ends first. Interrupting the
caller (Ctrl-C) cancels the call. Not usable after a fork, because the child does not have the thread.
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

from palisade.client.client_closed import ClientClosed

T = TypeVar("T")
LAST_CALLS_S = 1.0
"""How long calls may take to end after the client is closed."""
EXIT_S = 3.0
"""How long the exit of the process waits for the thread."""


class LoopThread:
    """`on_start` runs in the thread before the first call, `on_stop` after the last accepted one."""

    def __init__(
        self,
        on_start: Callable[[], Awaitable[object]],
        on_stop: Callable[[], Awaitable[object]],
        what: str = "client",
        remedy: str = "create a new one",
    ) -> None:
        """`what`: the object that its errors report as closed; `remedy`: the advice in them."""
        self._on_start, self._on_stop = on_start, on_stop
        self._what, self._remedy = what, remedy
        self._process = os.getpid()
        self._lock = threading.RLock()  # A garbage-collected client is stopped by the collecting thread.
        self._accepts = True
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._main, name=f"palisade-{what}", daemon=True)
        self._thread.start()
        _open_threads.add(self)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of the coroutine. Raises its errors, and ClientClosed."""
        return self.result(self.begin(coroutine))

    def result(self, future: Future[T]) -> T:
        """Wait for a call that has begun; interrupting the wait cancels the call."""
        try:
            return future.result()
        except CancelledError:
            raise ClientClosed(f"the {self._what} was closed during the call") from None
        finally:
            future.cancel()
            del future  # It refers to the error, whose traceback refers to this frame.

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """A future of the coroutine's result. Raises ClientClosed; RuntimeError if waiting for it would never end."""
        refusal = self._refusal()
        if refusal is None:
            with self._lock:
                if self._accepts:
                    return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
            refusal = ClientClosed(f"the {self._what} is closed; {self._remedy}")
        coroutine.close()
        raise refusal

    def call(self, function: Callable[[T], object], argument: T) -> None:
        """Call the function in the thread, unless the client is closed."""
        with self._lock:
            if self._accepts:
                self._loop.call_soon_threadsafe(function, argument)

    def _refusal(self) -> Exception | None:
        if os.getpid() != self._process:
            return RuntimeError(f"this {self._what} was used before a fork; {self._remedy} in the child process")
        if threading.current_thread() is self._thread:
            return RuntimeError(f"a callback of the {self._what} must not call it, because it would wait for itself")
        return None

    def stop(self, timeout_s: float | None = None) -> None:
        """End the thread and wait for it. Does nothing in a forked child, which does not have the thread."""
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
        """Let the calls that `on_stop` ended return, then cancel the rest."""
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
    """Close connections in order before the interpreter exits."""
    for each in list(_open_threads):
        each.stop(EXIT_S)
