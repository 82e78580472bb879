"""Who is told of each change: the listeners of the components, in order, none before all components have started.

What holds, and why:
- Nobody is told anything before `open`, which the lifecycle calls when the last component has started. So a listener
  may rely on every component, its own and others.
- Revisions come in order, each once, and the next one begins when all listeners are done with the one before. So a
  listener never sees two at a time.
- When one listener fails, the others still get to the end of that revision (none is left half-way), the revision does
  not count as handled, and nothing is told any more: the node stops, and its next start tells the revision again. A
  listener must therefore bear to see the same revision twice over two starts (scenarios.md, "Recovery").
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from palisade.base.start_order import ComponentError
from palisade.base.versioned_value import VersionedValue
from palisade.vault.change import VaultEvent


class Told(NamedTuple):
    """What one revision has changed. After a snapshot of a node that runs it is what has changed up to `revision`, by
    key, in parts: each but the last of them has `last` False."""

    revision: int
    events: Sequence[VaultEvent]
    last: bool = True


Listener = Callable[[Told], Awaitable[None] | None]
"""A plain function that returns None is told without a turn of the loop."""


class NotStartedYet(ComponentError):
    """Somebody told of a revision before all components had started. A fault of the program."""


class ListenerFailed(ComponentError):
    """A component could not handle a revision. The node stops, and tries again at its next start."""

    def __init__(self, component: str, revision: int, cause: BaseException) -> None:
        reason = f"{type(cause).__name__}: {cause}"
        super().__init__(
            f"component {component} could not handle revision {revision} ({reason}); the revision counts as not "
            "handled, the node stops, and its next start tries it again"
        )
        self.component = component
        self.revision = revision


class Listeners:
    """`handled`: the newest revision that every listener is done with."""

    def __init__(self, handled: int = 0) -> None:
        self.handled = handled
        self._listeners: dict[str, list[Listener]] = {}
        self._values: dict[str, list[VersionedValue[Any]]] = {}
        self._open = False
        self._failure: ListenerFailed | None = None

    def __bool__(self) -> bool:
        """Whether anybody listens, or waits for a revision."""
        return bool(self._listeners or self._values)

    def listen(self, component: str, listener: Listener) -> None:
        """From within the component's start. Raises ComponentError once notifications have begun."""
        self._refuse_late(component)
        self._listeners.setdefault(component, []).append(listener)

    def value(self, component: str, initial: Any, *, kept: int = 1_000) -> VersionedValue[Any]:
        """A value of the component that moves with the revisions: complete when its listeners are done with one."""
        self._refuse_late(component)
        value: VersionedValue[Any] = VersionedValue(component, initial, self.handled, kept=kept)
        self._values.setdefault(component, []).append(value)
        return value

    def _refuse_late(self, component: str) -> None:
        if self._open:
            raise ComponentError(f"component {component} registers after notifications have begun: do it in its start")

    def begin_at(self, revision: int) -> None:
        """Everything up to `revision` is in the components already: they have started from a vault that has it."""
        if self._open:
            raise ComponentError(f"notifications have begun at {self.handled}: they can't begin at {revision} again")
        self.handled = revision
        for values in self._values.values():
            for value in values:
                value.complete(revision)

    def open(self) -> None:
        """All components have started: from now on listeners may be told."""
        self._open = True

    def close(self, reason: str) -> None:
        """Nobody is told anything any more, and nobody waits for a value."""
        self._open = False
        for values in self._values.values():
            for value in values:
                value.fail(reason)

    async def tell(self, told: Told) -> None:
        """Return when every listener is done with the revision. Raises ListenerFailed, NotStartedYet."""
        if self._failure is not None:
            raise self._failure
        if not self._open:
            raise NotStartedYet(f"revision {told.revision} is told before all components have started")
        if told.revision <= self.handled:
            raise ComponentError(f"revision {told.revision} is told after {self.handled}: each once, in order")
        if told.last and self._values:
            for component in self._values.keys() - self._listeners.keys():
                self._complete(component, told.revision)
        if len(self._listeners) == 1:
            for component, listeners in self._listeners.items():
                await self._tell_one(component, listeners, told)
        elif self._listeners:
            await asyncio.gather(*[self._tell_one(*each, told) for each in self._listeners.items()])
        if self._failure is not None:
            raise self._failure
        if told.last:
            self.handled = told.revision

    async def _tell_one(self, component: str, listeners: list[Listener], told: Told) -> None:
        """One component's listeners, then its values. Components are told at the same time, so that one may wait for
        the value of another; values of components that listen to nothing are certain before.
        """
        try:
            for listener in listeners:
                answer = listener(told)
                if answer is not None:
                    await answer
        except Exception as error:
            self._failed(component, told.revision, error)
        else:
            if told.last and self._values:
                self._complete(component, told.revision)

    def _failed(self, component: str, revision: int, error: Exception) -> None:
        """The first one is what the node stops for; who waits for a value of this component is let go."""
        failure = ListenerFailed(component, revision, error)
        failure.__cause__ = error
        self._failure = self._failure or failure
        for value in self._values.get(component, ()):
            value.fail(f"it could not handle revision {revision}: {error}")

    def _complete(self, component: str, revision: int) -> None:
        for value in self._values.get(component, ()):
            value.complete(revision)
