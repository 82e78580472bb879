"""Many puts under way that one caller waits for: counted, without a task or a future for each of them.

It stands in for the future of every one of these operations (`operation.Slot`). Answers come by frames of hundreds; the
caller is woken once for a frame, when there is room for more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from palisade.metastore.result_codec import PUT, refusal_in


class Many:
    """At most `outstanding` under way. `progress` hears how many are done, once per frame of answers."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, outstanding: int, progress: Callable[[int], None] | None
    ) -> None:
        self._loop = loop
        self._outstanding = outstanding
        self._progress = progress
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._closed = False
        self._begun = 0
        self.ended = 0
        """How many were acknowledged."""

    # What the caller does.

    def begin(self) -> bool:
        """One more is on its way. Whether there is room for yet another."""
        self._begun += 1
        return self._begun - self.ended < self._outstanding

    async def room(self) -> None:
        """Wait until there is some. Raises the first error."""
        await self._until(self._outstanding - 1)

    async def all_done(self) -> None:
        """Raises the first error."""
        await self._until(0)

    def close(self) -> None:
        """Whatever is answered from now on is nobody's business."""
        self._closed = True

    async def _until(self, under_way: int) -> None:
        while self._error is None and self._begun - self.ended > under_way:
            self._waiter = self._loop.create_future()
            await self._waiter
            if self._progress is not None:
                self._progress(self.ended)
        if self._error is not None:
            raise self._error

    # What the session does with it, as with a future.

    def done(self) -> bool:
        return self._closed or self._error is not None

    def set_result(self, wire: Any) -> None:
        if wire[0] != PUT:
            self.set_exception(refusal_in(wire))
            return
        self.ended += 1
        self._wake()

    def set_exception(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
