"""Simulated time and processes: one thread, one seed, one order of events.

A `Process` is a `VirtualLoop` with a clock of its own (offset and rate), that can be paused and killed. The
`Simulation` always continues with the process that is due first; among those due at the same time it draws one at
random.

The next due process is known without a search: a process reports that it was touched (a callback was scheduled on its
loop, it was paused, resumed or killed), and only then its due time is computed again.

A process that is paused or killed stops between two callbacks of its turn. Between two steps of one callback it stops
where it calls `stand_still`: all others continue from within that step, until it is resumed.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from asyncio import events
from collections.abc import Callable, Coroutine
from itertools import count
from random import Random
from typing import Any

from tests.support.virtual_loop import VirtualLoop

WALL_MS = 1_700_000_000_000
"""The wall clock when a simulation begins."""


class Stuck(AssertionError):
    """Nothing is due any more, or the time is over, and the condition does not hold."""


class Process:
    """`rate`: how fast its clock runs (1.0 is true time). `place`: among all processes, in the order in which they
    began. `halted`: it is paused or dead. `still`: it is suspended in a turn, and has no other one meanwhile."""

    def __init__(
        self,
        simulation: Simulation,
        name: str,
        rate: float,
        offset_s: float,
        loop: Callable[[Callable[[], float]], VirtualLoop],
        place: int,
    ) -> None:
        self.name = name
        self.simulation = simulation
        self._paused = False
        self.resumed_at = 0.0
        """When it last resumed after a pause, by its clock."""
        self.dead = False
        self.on_death: dict[object, Callable[[], None]] = {}
        """Called by the world when it is killed."""
        self.reset_peers = True
        """Whether its system closes its connections, or its peers are not notified."""
        self._rate = rate
        self._offset_s = offset_s
        self.wall_offset_s = 0.0
        """The difference of its wall clock to true time."""
        self.place = place
        self.due_at: float | None = None
        self.touched = self.halted = self.still = False
        self.stood_s = 0.0
        """For how long it was suspended in all, by its clock."""
        self._touches = simulation.touches
        self.loop = loop(self.now)
        self.loop.own = self
        self.touch()

    @property
    def paused(self) -> bool:
        """Changed by `pause` and `resume`."""
        return self._paused

    def now(self) -> float:
        """Its clock: seconds since an arbitrary start."""
        return self._offset_s + self._rate * self.simulation.now

    def keep_time(self, rate: float, offset_s: float) -> None:
        """From now on by this clock."""
        self._rate, self._offset_s = rate, offset_s
        self.touch()

    def wall_ns(self) -> int:
        return (WALL_MS + int((self.simulation.now + self.wall_offset_s) * 1000)) * 1_000_000

    def due(self) -> float | None:
        """When it is due, in the simulation's time. The same number at every call: another rounding, at another moment,
        would be another run."""
        if self._paused or self.dead or self.still:
            return None
        loop, now = self.loop, self.simulation.now
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

    def call(self, callback: Callable[..., Any], *arguments: Any) -> None:
        """Run it in this process in its next turn; never, if the process is killed before."""
        if not self.dead:
            self.loop.call_soon(callback, *arguments)

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self.loop.create_task(coroutine)

    def pause(self) -> None:
        """SIGSTOP: messages continue to arrive, nothing runs, the clock continues."""
        self._paused = self.halted = True
        self.touch()

    def resume(self) -> None:
        if self._paused:
            self.resumed_at = self.now()
        self._paused = False
        self.halted = self.dead
        self.touch()

    def kill(self) -> None:
        self.dead = self.halted = True
        self.loop.abandon()
        hear, self.on_death = self.on_death, {}
        for each in hear.values():
            each()
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


class Simulation:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.now = 0.0
        self.turns = 0
        self.turning: Process | None = None
        """The process that has its turn."""
        self.after_turn: Callable[[Process], None] = lambda _process: None
        self.touches: list[Process] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order, self._places = count(), count()
        self._processes: list[Process] = []
        self._heap: list[tuple[float, int, Process]] = []
        self._broken: BaseException | None = None
        """An error raised during a suspension, which the suspended code may catch."""

    def process(
        self,
        name: str,
        *,
        rate: float = 1.0,
        offset_s: float = 1000.0,
        loop: Callable[[Callable[[], float]], VirtualLoop] = VirtualLoop,
    ) -> Process:
        process = Process(self, name, rate, offset_s, loop, next(self._places))
        self._processes.append(process)
        return process

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """An event of the world outside the processes."""
        heapq.heappush(self._events, (self.now + delay_s, next(self._order), action))

    def run_for(self, duration_s: float) -> None:
        end = self.now + duration_s
        step = self._step
        while step(end):
            pass
        self.now = max(self.now, end)

    def run_until(self, condition: Callable[[], bool], *, within_s: float) -> None:
        """Raises Stuck if `condition` does not hold in time."""
        end = self.now + within_s
        while not condition():
            if not self._step(end):
                raise Stuck(f"seed {self.seed}: after {within_s:g} s of simulated time the condition does not hold")

    def run(self, process: Process, coroutine: Coroutine[Any, Any, Any], *, within_s: float = 60.0) -> Any:
        """Run a coroutine in a process to its end."""
        task = process.start(coroutine)
        self.run_until(task.done, within_s=within_s)
        return task.result()

    def go_on_without(self, process: Process, until: float) -> None:
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
        heap, now = self._heap, self.now
        for process in self.touches:
            process.touched = False
            due = now if process.loop._ready and not (process.halted or process.still) else process.due()
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

    def _take(self, process: Process) -> None:
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

    def _due_at(self, first: float) -> list[Process]:
        heap = self._heap
        found: list[Process] = []
        while heap and heap[0][0] <= first:
            due, _, process = heapq.heappop(heap)
            if process.due_at == due and process not in found:
                found.append(process)
        return found

    def close(self) -> None:
        """End the remains of all processes, so that no code of them runs when they are collected."""
        for process in self._processes:
            process.loop.end()
        self._processes.clear()
