"""Starts the components of a node in order of dependency and stops them in reverse (R10, seed 001).

Guarantees, with reasons:
- A component starts after everything that it needs, and stops before it, because both follow the order of
  `base/start_order.py`.
- Either all components run, or none: if one cannot start, those already started are stopped in reverse order, and the
  error names the component and the cause. A component whose `start` raised has cleaned up itself, as with
  `__aenter__`; it is not stopped.
- No component is notified of a revision before the last one has started: the listeners are opened only then.
- A component that fails to stop does not prevent others from stopping.
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
    """A component could not start, failed while running, or could not stop; `cause` is its exception."""

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
    """The interface of a component; each method does nothing by default."""

    async def start(self) -> None:
        """Prepare everything that dependent components need. Registers listeners."""

    async def run(self) -> None:
        """Runs in the background for the rest of its life; raising stops the node, returning does not."""

    async def stop(self) -> None:
        """The opposite of `start`. `run` has been cancelled before."""


@dataclass(frozen=True, slots=True)
class Part:
    """A component, its name, and the names of the components that it needs."""

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
        """Raises ComponentFailed, after stopping everything that had started; so does a cancellation."""
        try:
            for name in self.order:
                await self._start(name)
        except GeneratorExit:  # its event loop is gone: nothing can be awaited
            raise
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
        """Wait until a component fails, and raise ComponentFailed."""
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
        """In reverse order. Raises the first ComponentFailed after trying to stop all."""
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
        """`wait` reports an exception of `run`; this only ends it."""
        task = self._running.pop(name)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
