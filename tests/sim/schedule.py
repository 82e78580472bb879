"""The simulation of `tests/support/simulation.py`, fast enough for whole clusters: the same rules, another bookkeeping.

The next due process is known without a search: a process reports that it was touched (a callback was scheduled on its
loop, it was paused, resumed or killed), and only then its due time is computed again. Timers are tuples in a heap, so
that C compares them.

A process that is paused or killed stops between two callbacks of its turn. Between two steps of one callback it stops
where it calls `stand_still`: all others continue from within that step, until it is resumed.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import math
import threading
import weakref
from asyncio import events
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

from tests.support.simulation import Process, Simulation
from tests.support.virtual_loop import VirtualLoop

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


class FastLoop(VirtualLoop):
    """`own`: its process, which is notified of scheduled callbacks. Callbacks without a context share one: nothing in
    the product keeps anything there."""

    own: FastProcess
    get_debug: Any = bool
    """Called for each future: a call that needs no frame."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self.time = clock  # type: ignore[method-assign]
        self.timers: list[tuple[float, int, Handle]] = []
        self._context = contextvars.copy_context()
        self._order = count()
        self._turning = threading.get_ident()
        self._tasks = weakref.WeakSet[asyncio.Task[Any]]()

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
        """Remaining coroutines may still unwind, and schedule callbacks: those never run."""
        super().abandon()
        self.timers.clear()
        self._ready: deque[Any] = deque(maxlen=0)


def _is_unheard(task: Any) -> bool:
    return bool(task._log_traceback)  # what asyncio itself checks when the task is collected


def _failure_of(task: asyncio.Task[Any]) -> BaseException:
    error = task.exception()
    assert error is not None
    return error


class FastProcess(Process):
    """`place`: among all processes, in the order in which they began. `halted`: it is paused or dead. `still`: it is
    suspended in a turn, and has no other one meanwhile."""

    simulation: FastSimulation

    def __init__(
        self, simulation: FastSimulation, name: str, rate: float, offset_s: float, loop: Any, place: int
    ) -> None:
        super().__init__(simulation, name, rate, offset_s, loop)
        self.place = place
        self.due_at: float | None = None
        self.touched = self.halted = self.still = False
        self.stood_s = 0.0
        """For how long it was suspended in all, by its clock."""
        self._touches = simulation.touches
        fast: Any = self.loop
        fast.own = self
        self.touch()

    def due(self) -> float | None:
        """The same number at every call: another rounding, at another moment, would be another run."""
        if self.paused or self.dead or self.still:
            return None
        loop: Any = self.loop
        now = self.simulation.now
        if loop._ready:
            return now
        when = loop.next_due()
        if when is None:
            return None
        due: float = (when - self._offset_s) / self._rate
        return due if due > now else now

    def touch(self) -> None:
        if not self.touched:
            self.touched = True
            self._touches.append(self)

    def keep_time(self, rate: float, offset_s: float) -> None:
        super().keep_time(rate, offset_s)
        self.touch()

    def pause(self) -> None:
        super().pause()
        self.halted = True
        self.touch()

    def resume(self) -> None:
        super().resume()
        self.halted = self.dead
        self.touch()

    def kill(self) -> None:
        self.halted = True
        super().kill()
        self.touch()

    def stand_still(self) -> None:
        """In the middle of a step, until it is resumed or killed, and then for as long as others are suspended
        meanwhile. Must be called in a turn of its own."""
        self.pause()
        self._stand(self.simulation.now)

    def stand_still_for(self, seconds: float) -> None:
        """The same for so long, and until it is resumed if it is paused meanwhile."""
        simulation = self.simulation
        until = simulation.now + seconds
        simulation.after(seconds, lambda: None)
        self._stand(until)

    def _stand(self, until: float) -> None:
        began = self.now()
        self.still = True
        self.touch()
        try:
            self.simulation.go_on_without(self, until)
        finally:
            self.still = False
            self.stood_s += self.now() - began
            self.touch()


class FastSimulation(Simulation):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.touches: list[FastProcess] = []
        self._places = count()
        self._heap: list[tuple[float, int, FastProcess]] = []
        self._broken: BaseException | None = None
        """An error raised during a suspension, which the suspended code may catch."""

    def process(
        self, name: str, *, rate: float = 1.0, offset_s: float = 1000.0, loop: Callable[[Any], Any] = FastLoop
    ) -> Process:
        process = FastProcess(self, name, rate, offset_s, loop, next(self._places))
        self._processes.append(process)
        return process

    def run_for(self, duration_s: float) -> None:
        end = self.now + duration_s
        step = self._step
        while step(end):
            pass
        self.now = max(self.now, end)

    def go_on_without(self, process: FastProcess, until: float) -> None:
        """At least until then."""
        before = events._get_running_loop()
        events._set_running_loop(None)
        try:
            while (process.paused or self.now < until) and not process.dead and self._step(math.inf):
                pass
        except BaseException as error:
            self._broken = error
            raise
        finally:
            events._set_running_loop(before)

    def _ask_touched(self) -> None:
        heap = self._heap
        for process in self.touches:
            process.touched = False
            due = process.due()
            if due != process.due_at:
                process.due_at = due
                if due is not None:
                    heapq.heappush(heap, (due, process.place, process))
        self.touches.clear()

    def _step(self, end: float) -> bool:
        if self.touches:
            self._ask_touched()
        heap, world = self._heap, self._events
        while heap and heap[0][2].due_at != heap[0][0]:
            heapq.heappop(heap)
        first = heap[0][0] if heap else None
        if world and (first is None or world[0][0] < first):
            first = world[0][0]
        if first is None or first > end:
            return False
        if first > self.now:
            self.now = first
        if not heap or heap[0][0] > first:
            heapq.heappop(world)[2]()
        elif self._is_alone(first):
            self._take(heapq.heappop(heap)[2])
        else:
            self._draw(first)
        return True

    def _draw(self, first: float) -> None:
        """Several are due at the same moment: one is drawn at random."""
        heap, world = self._heap, self._events
        candidates = self._due_at(first)
        worldly = bool(world) and world[0][0] <= self.now
        choice = 0
        if len(candidates) + worldly > 1:
            choice = int(self.random.random() * (len(candidates) + worldly))
        chosen = candidates.pop(choice) if choice < len(candidates) else None
        for process in candidates:
            heapq.heappush(heap, (first, process.place, process))
        if chosen is None:
            heapq.heappop(world)[2]()
        else:
            self._take(chosen)

    def _is_alone(self, first: float) -> bool:
        """Whether exactly one process is due at that moment: no draw is necessary."""
        heap, world = self._heap, self._events
        if world and world[0][0] <= first:
            return False
        count = len(heap)
        return not (count > 1 and heap[1][0] == first) and not (count > 2 and heap[2][0] == first)

    def _take(self, process: FastProcess) -> None:
        process.due_at = None
        self.turns += 1
        before, self.turning = self.turning, process
        process.loop.turn()
        self.turning = before
        if self._broken is not None:
            raise self._broken
        if not process.touched:
            process.touch()
        if process.dead:
            return
        if process.loop.exceptions:
            context = process.loop.exceptions[0]
            raise AssertionError(f"seed {self.seed}, {process.name}: {context}") from context.get("exception")
        self.after_turn(process)

    def _due_at(self, first: float) -> list[FastProcess]:
        heap = self._heap
        found: list[FastProcess] = []
        while heap and heap[0][0] <= first:
            due, _, process = heapq.heappop(heap)
            if process.due_at == due and process not in found:
                found.append(process)
        return found

    def _bury(self) -> None:
        """Dead processes are never due; they are kept until the end."""
