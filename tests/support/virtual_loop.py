"""An asyncio event loop without a selector and without a clock of its own: the simulation sets its time and runs its
turns.

It runs unmodified asyncio code; a run is a pure function of its inputs. Each simulated process has a loop of its own,
so that it can be paused (its loop has no turns) or killed (its loop never has a turn again) at any await, as a real
process can. `simulation.py` owns the time and chooses the next turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import threading
from asyncio import events
from collections.abc import Callable
from typing import Any


class _NothingToSelect:
    """The simulation has set the time already: there is nothing to wait for."""

    def select(self, _timeout: float | None) -> list[Any]:
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """`clock` returns the loop's time in seconds. Threads, sockets, signals and subprocesses do not exist."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock
        self._selector = _NothingToSelect()
        self.set_exception_handler(self._on_exception)
        self.exceptions: list[dict[str, Any]] = []
        """Errors of tasks that were never awaited; the simulation fails on them."""
        self._left: set[asyncio.Task[Any]] = set()

    def time(self) -> float:
        return self._clock()

    def next_due(self) -> float | None:
        """The loop's time of its next timer or callback; None if there is none."""
        if self._ready:
            return self.time()
        scheduled = self._scheduled
        while scheduled and scheduled[0]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(scheduled)._scheduled = False
        return scheduled[0]._when if scheduled else None

    def turn(self) -> None:
        """Run what is ready and what is due, once."""
        self._thread_id = threading.get_ident()
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            self._run_once()
        finally:
            self._thread_id = None
            events._set_running_loop(before)

    def abandon(self) -> None:
        """The process is gone: none of its code runs again, not even a `finally`, and no task is notified."""
        self._left |= asyncio.all_tasks(self)
        self._ready.clear()
        self._scheduled.clear()
        self.set_exception_handler(lambda _loop, _context: None)

    def end(self) -> None:
        """After the run: close the remaining coroutines, and tasks that start during that, in a loop that never turns
        again."""
        self.abandon()
        before, closed = events._get_running_loop(), set[asyncio.Task[Any]]()
        events._set_running_loop(self)
        try:
            while left := self._left - closed:
                for task in left:
                    task._log_destroy_pending = False
                    with contextlib.suppress(BaseException):
                        task.get_coro().close()
                closed |= left
                self._left |= asyncio.all_tasks(self)
        finally:
            events._set_running_loop(before)
        self._left = set()

    def _process_events(self, event_list: list[Any]) -> None: ...

    def _write_to_self(self) -> None: ...

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        raise RuntimeError("a simulated process has no threads: hand in a simulated port instead")

    def _on_exception(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.exceptions.append(context)
