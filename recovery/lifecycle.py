"""Starts the components of a node in order of dependency and stops them in reverse (R10, seed 001).

What holds, and why:
- A component starts when everything that it needs has started, and stops before anything that it needs stops, because
  both walk the one order of `base/start_order.py`.
- Either all components run, or none: when one can't start, those that had started are stopped, in reverse, and the
  error names the component and the cause. A component whose `start` raised has cleaned up behind itself, as with
  `__aenter__`; it is not stopped.
- Nobody is told of any revision before the last component has started: only then are the listeners opened.
- A component that fails to stop keeps no other from stopping.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from palisade.base.start_order import ComponentError, start_order
from palisade.recovery.listeners import Listeners

log = logging.getLogger(__name__)


class LifecyclePhase(enum.Enum):
    START = "start"
    RUN = "run"
    STOP = "stop"


class ComponentFailed(ComponentError):
    """A component could not start, failed while it ran, or could not stop; `cause` is what it raised."""

    def __init__(self, component: str, phase: LifecyclePhase, cause: BaseException) -> None:
        verb = {
            LifecyclePhase.START: "could not start",
            LifecyclePhase.RUN: "failed",
            LifecyclePhase.STOP: "could not stop cleanly",
        }[phase]
        super().__init__(f"component {component} {verb}: {cause or type(cause).__name__}")
        self.component = component
        self.phase = phase
        self.cause = cause


class Component:
    """What a component may do; each of these does nothing unless it is said otherwise."""

    async def start(self) -> None:
        """Whatever must be there before those that need this one start. Registers listeners."""

    async def run(self) -> None:
        """For the rest of its life, in the background; raising stops the node, returning does not."""

    async def stop(self) -> None:
        """The opposite of `start`. `run` has been cancelled before."""


@dataclass(frozen=True, slots=True)
class Part:
    """A component, its name, and the names of those that it needs."""

    name: str
    component: Component
    needs: tuple[str, ...] = ()


class Lifecycle:
    """`start`, then `wait`, then `stop`, which is safe to call in any state."""

    def __init__(self, parts: Sequence[Part], listeners: Listeners | None = None) -> None:
        """Raises WiringError."""
        by_name = {part.name: part for part in parts}
        if len(by_name) < len(parts):
            names = sorted(part.name for part in parts)
            raise ComponentError(f"two components have the same name among {', '.join(names)}: rename one")
        self.order = start_order({part.name: part.needs for part in parts})
        self.listeners = listeners if listeners is not None else Listeners()
        self.started: list[str] = []
        self.parts = tuple(parts)
        self._parts = by_name
        self._running: dict[str, asyncio.Task[None]] = {}

    async def start(self) -> None:
        """Raises ComponentFailed, with everything stopped that had started; so does a cancellation."""
        try:
            for name in self.order:
                await self._start(name)
        except BaseException:
            await asyncio.shield(self._stop_all(reraise=False))
            raise
        self.listeners.open()
        log.debug("started: %s", ", ".join(self.started))

    async def _start(self, name: str) -> None:
        component = self._parts[name].component
        try:
            await component.start()
        except Exception as error:
            raise ComponentFailed(name, LifecyclePhase.START, error) from error
        self.started.append(name)
        self._running[name] = asyncio.get_running_loop().create_task(component.run(), name=f"run {name}")

    async def wait(self) -> None:
        """Until a component fails: raises ComponentFailed. Goes on for ever otherwise."""
        while True:
            for name, task in self._running.items():
                if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                    raise ComponentFailed(name, LifecyclePhase.RUN, error) from error
            running = [task for task in self._running.values() if not task.done()]
            if running:
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.get_running_loop().create_future()

    async def stop(self) -> None:
        """In reverse order. Raises the first ComponentFailed of those that could not stop, when all were tried."""
        await self._stop_all(reraise=True)

    async def _stop_all(self, *, reraise: bool) -> None:
        self.listeners.close("the node is stopping")
        failed: list[ComponentFailed] = []
        while self.started:
            name = self.started.pop()
            await self._end_run(name)
            try:
                await self._parts[name].component.stop()
            except Exception as error:
                failed.append(ComponentFailed(name, LifecyclePhase.STOP, error))
                failed[-1].__cause__ = error
                log.warning("%s", failed[-1])
        if failed and reraise:
            raise failed[0]

    async def _end_run(self, name: str) -> None:
        """What `run` raised is `wait`'s to tell; here it only has to be over."""
        task = self._running.pop(name)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
