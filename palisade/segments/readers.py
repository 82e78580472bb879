"""Counts the running readers of each copy on a node: a file or log is removed only after they have ended."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class Readers:
    """Counts the readers of each copy."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._ended: dict[str, asyncio.Event] = {}

    @contextmanager
    def reading(self, name: str) -> Iterator[None]:
        self._counts[name] += 1
        try:
            yield
        finally:
            self._counts[name] -= 1
            if not self._counts[name]:
                del self._counts[name]
                if (ended := self._ended.pop(name, None)) is not None:
                    ended.set()

    async def until_none(self, name: str) -> None:
        while self._counts[name]:
            await self._ended.setdefault(name, asyncio.Event()).wait()
