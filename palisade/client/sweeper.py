"""The timer of a session: frequent while requests are pending, because each has a deadline, otherwise infrequent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

SWEEP_S, CALM_SWEEP_S = 0.05, 0.25


class Sweeper:
    """`sweep` checks the deadlines and the connection, and returns whether requests are pending."""

    def __init__(self, sweep: Callable[[], bool]) -> None:
        self._sweep = sweep
        self._timer: asyncio.TimerHandle | None = None
        self.is_calm = False
        """No request was pending at the last sweep: the next request has to call `wake`."""

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._go_on()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def wake(self) -> None:
        self.stop()
        self.is_calm = False
        self._timer = self._loop.call_later(SWEEP_S, self._go_on)

    def _go_on(self) -> None:
        self.is_calm = not self._sweep()
        self._timer = self._loop.call_later(CALM_SWEEP_S if self.is_calm else SWEEP_S, self._go_on)
