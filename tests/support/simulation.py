"""Simulated time and processes: one thread, one seed, one order of events.

A `Process` is a `VirtualLoop` with a clock of its own (offset and rate), that can be paused and killed. The
`Simulation` always continues with the process that is due first; among those due at the same time it draws one at
random.
"""

from __future__ import annotations

import asyncio
import heapq
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
    """`rate`: how fast its clock runs (1.0 is true time)."""

    def __init__(
        self,
        simulation: Simulation,
        name: str,
        rate: float,
        offset_s: float,
        loop: Callable[[Callable[[], float]], VirtualLoop] = VirtualLoop,
    ) -> None:
        self.name = name
        self.simulation = simulation
        self.paused = False
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
        self.loop = loop(self.now)

    def now(self) -> float:
        """Its clock: seconds since an arbitrary start."""
        return self._offset_s + self._rate * self.simulation.now

    def keep_time(self, rate: float, offset_s: float) -> None:
        """From now on by this clock."""
        self._rate, self._offset_s = rate, offset_s

    def wall_ns(self) -> int:
        return (WALL_MS + int((self.simulation.now + self.wall_offset_s) * 1000)) * 1_000_000

    def due(self) -> float | None:
        """When it is due, in the simulation's time."""
        when = None if self.paused or self.dead else self.loop.next_due()
        return (
            None if when is None else max(self.simulation.now, self.simulation.now + (when - self.now()) / self._rate)
        )

    def call(self, callback: Callable[..., Any], *arguments: Any) -> None:
        """Run it in this process in its next turn; never, if the process is killed before."""
        if not self.dead:
            self.loop.call_soon(callback, *arguments)

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self.loop.create_task(coroutine)

    def pause(self) -> None:
        """SIGSTOP: messages continue to arrive, nothing runs, the clock continues."""
        self.paused = True

    def resume(self) -> None:
        if self.paused:
            self.resumed_at = self.now()
        self.paused = False

    def kill(self) -> None:
        self.dead = True
        self.loop.abandon()
        hear, self.on_death = self.on_death, {}
        for each in hear.values():
            each()


class Simulation:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.now = 0.0
        self.turns = 0
        self.turning: Process | None = None
        """The process that has its turn."""
        self.after_turn: Callable[[Process], None] = lambda _process: None
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._processes: list[Process] = []
        self._graveyard: list[Process] = []

    def process(
        self,
        name: str,
        *,
        rate: float = 1.0,
        offset_s: float = 1000.0,
        loop: Callable[[Callable[[], float]], VirtualLoop] = VirtualLoop,
    ) -> Process:
        process = Process(self, name, rate, offset_s, loop)
        self._processes.append(process)
        return process

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """An event of the world outside the processes."""
        heapq.heappush(self._events, (self.now + delay_s, next(self._order), action))

    def run_for(self, duration_s: float) -> None:
        end = self.now + duration_s
        while self._step(end):
            pass
        self.now = end

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

    def _step(self, end: float) -> bool:
        """The next event or turn, if it is due by `end`."""
        self._bury()
        first, candidates = self._events[0][0] if self._events else None, []
        for process in self._processes:
            due = process.due()
            if due is None or (first is not None and due > first):
                continue
            if first is None or due < first:
                first, candidates = due, []
            candidates.append(process)
        if first is None or first > end:
            return False
        self.now = max(self.now, first)
        events_too = bool(self._events) and self._events[0][0] <= self.now
        choice = 0
        if len(candidates) + events_too > 1:
            choice = int(self.random.random() * (len(candidates) + events_too))
        if choice < len(candidates):
            self._turn(candidates[choice])
        else:
            heapq.heappop(self._events)[2]()
        return True

    def _turn(self, process: Process) -> None:
        self.turns += 1
        self.turning = process
        process.loop.turn()
        self.turning = None
        if process.loop.exceptions:
            context = process.loop.exceptions[0]
            raise AssertionError(f"seed {self.seed}, {process.name}: {context}") from context.get("exception")
        self.after_turn(process)

    def close(self) -> None:
        """End the remains of all processes, so that no code of them runs when they are collected."""
        for process in [*self._processes, *self._graveyard]:
            process.loop.end()
        self._processes.clear()
        self._graveyard.clear()

    def _bury(self) -> None:
        """Dead processes are kept, so that no collected coroutine runs its `finally` in the middle of the run."""
        if any(process.dead for process in self._processes):
            self._graveyard += [process for process in self._processes if process.dead]
            self._processes = [process for process in self._processes if not process.dead]
