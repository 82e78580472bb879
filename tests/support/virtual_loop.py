"""An asyncio event loop without a selector and without a clock of its own: the simulation sets its time and runs its
turns.

It runs unmodified asyncio code; a run is a pure function of its inputs. Each simulated process has a loop of its own,
so that it can be paused or killed between any two callbacks, as a real process can. `simulation.py` owns the time and
chooses the next turn.

Timers are tuples in a heap, so that C compares them.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
import threading
import weakref
from asyncio import events
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.simulation import Process

RESOLUTION_S = 1e-9
TIMER_S_MIN = 1e-8
"""Time passes during any sleep, so that a task that waits for a moment which a clock of whole nanoseconds never quite
shows does not wait at one instant forever (a reader of a vault did, seed 2056 of the scenario members)."""
CALLBACKS_MAX = 10_000
"""In one turn. A process that always schedules new callbacks must not starve the others."""


class Handle:
    """A scheduled callback; a timer has a `time`. As `asyncio.Handle` and `asyncio.TimerHandle`."""

    __slots__ = ("args", "callback", "context", "off", "time")

    def __init__(self, callback: Any, args: Any, context: Any, time: float = 0.0) -> None:
        self.callback, self.args, self.context, self.time = callback, args, context, time
        self.off = False

    def cancel(self) -> None:
        self.off = True
        self.callback = self.args = None

    def cancelled(self) -> bool:
        return self.off

    def when(self) -> float:
        return self.time


class VirtualLoop(asyncio.BaseEventLoop):
    """`clock` returns the loop's time in seconds. Threads, sockets, signals and subprocesses do not exist.

    `own`: its process, which is notified of scheduled callbacks. Callbacks without a context share one: nothing in the
    product keeps anything there.
    """

    own: Process
    get_debug: Any = bool
    """Called for each future: a call that needs no frame."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self.time = clock  # type: ignore[method-assign]
        self.timers: list[tuple[float, int, Handle]] = []
        self._context = contextvars.copy_context()
        self._order = count()
        self._turning = threading.get_ident()
        self._tasks = weakref.WeakSet[asyncio.Task[Any]]()
        self.set_exception_handler(self._on_exception)
        self.exceptions: list[dict[str, Any]] = []
        """Errors of tasks that were never awaited; the simulation fails on them."""
        self._left: set[asyncio.Task[Any]] = set()

    def create_task(self, coro: Any, **options: Any) -> Any:
        task: Any = super().create_task(coro, **options)
        self._tasks.add(task)
        return task

    def unheard(self) -> list[BaseException]:
        """Errors of failed tasks that are referenced and were never retrieved, in a fixed order. Tasks without
        references report to the loop."""
        failed = [task for task in self._tasks if task.done() and not task.cancelled() and _is_unheard(task)]
        return sorted(map(_failure_of, failed), key=repr)

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        handle = Handle(callback, args, context or self._context)
        self._ready.append(handle)
        own = self.own
        if not own.touched:
            own.touch()
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
        when = self.time() + (delay if delay > TIMER_S_MIN else TIMER_S_MIN)
        return self.call_at(when, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        handle = Handle(callback, args, context or self._context, when)
        heapq.heappush(self.timers, (when, next(self._order), handle))
        own = self.own
        if not own.touched:
            own.touch()
        return handle

    def next_due(self) -> float | None:
        """The loop's time of its next timer or callback; None if there is none."""
        if self._ready:
            return self.time()
        timers = self.timers
        while timers and timers[0][2].off:
            heapq.heappop(timers)
        return timers[0][0] if timers else None

    def turn(self) -> None:
        """Run what is due, and its consequences at this moment: time passes only when all of that is done."""
        timers, ready = self.timers, self._ready
        if timers:
            end = self.time() + RESOLUTION_S
            while timers and timers[0][0] <= end:
                ready.append(heapq.heappop(timers)[2])
        self._thread_id = self._turning
        before = events._get_running_loop()
        events._set_running_loop(self)
        left, own = CALLBACKS_MAX, self.own
        try:
            while ready and left and not own.halted:
                left -= 1
                handle = ready.popleft()
                if not handle.off:
                    try:
                        handle.context.run(handle.callback, *handle.args)
                    except (SystemExit, KeyboardInterrupt):
                        raise
                    except BaseException as error:
                        self.exceptions.append({"message": f"in {handle.callback!r}", "exception": error})
        finally:
            self._thread_id = None
            events._set_running_loop(before)

    def abandon(self) -> None:
        """The process is gone: none of its code runs again, not even a `finally`, and no task is notified."""
        self._left |= asyncio.all_tasks(self)
        self.timers.clear()
        self._ready: deque[Any] = deque(maxlen=0)  # what remaining coroutines schedule while they unwind never runs
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

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        raise RuntimeError("a simulated process has no threads: hand in a simulated port instead")

    def _on_exception(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.exceptions.append(context)


def _is_unheard(task: Any) -> bool:
    return bool(task._log_traceback)  # what asyncio itself checks when the task is collected


def _failure_of(task: asyncio.Task[Any]) -> BaseException:
    error = task.exception()
    assert error is not None
    return error
