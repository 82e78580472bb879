"""Waiting for a condition instead of for a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


async def until(holds: Callable[[], object], within_s: float = 5.0) -> None:
    """Return once `holds()`; fail if it does not in time."""
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


def until_in_thread(holds: Callable[[], object], within_s: float) -> None:
    """Block the thread until `holds()`, or for `within_s`."""
    ends = time.monotonic() + within_s
    while not holds() and time.monotonic() < ends:
        time.sleep(0.01)
