"""Work in a thread that does not delay the end of the process: `asyncio.to_thread` is awaited even after Ctrl-C.

A process in which such a thread still runs must end by `exit_now`: the interpreter would stop the thread at an
arbitrary point, and abort if it holds the lock of stdout or executes C++ code.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import NoReturn, TypeVar

T = TypeVar("T")
WORKING, ENDED = "palisade-work", "palisade-work-ended"
"""Names of a thread while it executes the work, and afterwards."""


def is_working() -> bool:
    return any(thread.name == WORKING for thread in threading.enumerate())


def exit_now(code: int) -> NoReturn:
    """End the process without waiting for its threads."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(code)


async def in_daemon_thread(work: Callable[[], T]) -> T:
    """The result of `work`, which must be harmless if the process ends meanwhile. Raises its errors."""
    loop, found = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

    def settle(action: Callable[[], None]) -> None:
        if not found.done():
            action()

    def run() -> None:
        try:
            result = work()
        except Exception as error:
            ended = partial(found.set_exception, error)
        else:
            ended = partial(found.set_result, result)
        threading.current_thread().name = ENDED  # before the result arrives, because the process may end then
        deliver(ended)

    def deliver(action: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, action)

    threading.Thread(target=run, name=WORKING, daemon=True).start()
    result: T = await found
    return result
