"""Counts many outstanding puts of one caller without a task or a future for each.

`Many` takes the place of the future of each operation (`pending_request.Slot`). Results arrive in frames of hundreds;
the caller is woken once per frame.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from palisade.metastore.command_codec import PUT_RESULT, refusal_in


class Many:
    """At most `outstanding` puts at a time. `progress` is called with the number of completed puts, once per frame."""

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
        """The number of acknowledged puts."""

    # Called by the caller.

    def begin(self) -> bool:
        """Count one more put; returns whether another one may be sent."""
        self._begun += 1
        return self._begun - self.ended < self._outstanding

    async def room(self) -> None:
        """Wait until another put may be sent. Raises the first error."""
        await self._until(self._outstanding - 1)

    async def all_done(self) -> None:
        """Wait until every put is acknowledged. Raises the first error."""
        await self._until(0)

    def close(self) -> None:
        """Ignore later results."""
        self._closed = True

    async def _until(self, under_way: int) -> None:
        while self._error is None and self._begun - self.ended > under_way:
            self._waiter = self._loop.create_future()
            await self._waiter
            if self._progress is not None:
                self._progress(self.ended)
        if self._error is not None:
            raise self._error

    # Called with results; by the session, as on a future.

    def done(self) -> bool:
        return self._closed or self._error is not None

    def set_result(self, wire: Any) -> None:
        self.take(wire if wire[0] == PUT_RESULT else refusal_in(wire))

    def take(self, result: Any) -> None:
        """A result, or the error of a put."""
        if isinstance(result, Exception):
            self.set_exception(result)
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
