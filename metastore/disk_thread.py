"""One thread for the calls that wait for the disk; the event loop asks it, it never calls back.

A thread that wants the interpreter's lock beside a busy event loop may wait for it for seconds. So the loop looks by
itself whether the work is done, and lets go of the lock for a moment each time it looks.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import TypeVar

POLL_S = 0.002
YIELD_S = 0.0002

T = TypeVar("T")


class DiskThread:
    def __init__(self, name: str) -> None:
        self._executor = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix=name)

    async def run(self, work: Callable[[], T]) -> T:
        """The work's result. It is done to its end also when the caller is cancelled."""
        future = self._executor.submit(work)
        while not concurrent.futures.wait([future], YIELD_S).done:  # noqa: ASYNC110 - nobody may call back
            await asyncio.sleep(POLL_S)
        return future.result()

    def close(self) -> None:
        """Return when everything is done."""
        self._executor.shutdown(wait=True)
