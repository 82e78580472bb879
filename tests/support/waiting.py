"""Waiting for a condition instead of for a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(holds: Callable[[], object], within_s: float = 5.0) -> None:
    """Return once `holds()`; fail if it does not in time."""
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.002)
