"""Notification of each change: the listeners of the components, in order, none before all components have started.

Guarantees, with reasons:
- No listener is notified before `open`, which the lifecycle calls when the last component has started. Thus a listener
  may rely on every component, its own and others.
- Revisions come in order, each at most once, and the next one begins after all listeners have handled the previous one.
  Thus a listener never handles two at a time. No revision is skipped, unless every listener has a prefix and no
  component has a value: then the vault may leap, and one difference replaces several revisions. (Revision 1 has no
  changes; no listener is notified of it.)
- If one listener fails, the others still finish that revision (none is interrupted), the revision does not count as
  handled, and notifications end: the node stops, and its next start repeats the revision. A listener must therefore
  tolerate the same revision twice over two starts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from palisade.base.start_order import ComponentError
from palisade.base.versioned_value import VersionedValue
from palisade.vault.change import VaultEvent


class Notification(NamedTuple):
    """The changes of one revision; or a difference: the changes up to `revision`, by key. A leap is one difference. The
    difference after a snapshot of a running node comes in parts, of which all but the last have `last` False."""

    revision: int
    events: Sequence[VaultEvent]
    last: bool = True


Listener = Callable[[Notification], Awaitable[None] | None]
"""A plain function that returns None is called without a turn of the event loop."""


class NotStartedYet(ComponentError):
    """A notification before all components have started. A fault of the program."""


class ListenerFailed(ComponentError):
    """A component could not handle a revision. The node stops, and retries at its next start."""

    def __init__(self, component: str, revision: int, cause: BaseException) -> None:
        reason = f"{type(cause).__name__}: {cause}"
        super().__init__(
            f"component {component} could not handle revision {revision} ({reason}); the revision counts as not "
            "handled, the node stops, and its next start tries it again"
        )
        self.component = component
        self.revision = revision


class Listeners:
    """`handled`: the newest revision that every listener has handled."""

    def __init__(self, handled: int = 0) -> None:
        self.handled = handled
        self._listeners: dict[str, list[Listener]] = {}
        self._prefixes: list[bytes] = []
        self._all_keys = False
        self._values: dict[str, list[VersionedValue[Any]]] = {}
        self._open = False
        self._failure: ListenerFailed | None = None

    def __bool__(self) -> bool:
        """Whether there are listeners, or waiters for a revision."""
        return bool(self._listeners or self._values)

    @property
    def each_revision(self) -> bool:
        """Whether a component needs every single revision. If not, a vault may leap over several at once."""
        return self._all_keys or bool(self._values)

    @property
    def prefixes(self) -> tuple[bytes, ...]:
        """The keys that components listen to; an empty prefix: all keys."""
        return (b"",) if self._all_keys else tuple(self._prefixes)

    def listen(self, component: str, listener: Listener, *, below: bytes | None = None) -> None:
        """Call it within the component's start. Raises ComponentError once notifications have begun.

        `below`: only the keys with this prefix matter, and several revisions may arrive as one difference (a leap of
        the vault). Other keys may be among the changes. Thus a member's vault still follows the flushes of its store.
        """
        self._refuse_late(component)
        if below is None:
            self._all_keys = True
        else:
            self._prefixes.append(below)
        self._listeners.setdefault(component, []).append(listener)

    def value(self, component: str, initial: Any, *, kept: int = 1_000) -> VersionedValue[Any]:
        """A value of the component by revision; complete at a revision once its listeners have handled that one."""
        self._refuse_late(component)
        value: VersionedValue[Any] = VersionedValue(component, initial, self.handled, kept=kept)
        self._values.setdefault(component, []).append(value)
        return value

    def _refuse_late(self, component: str) -> None:
        if self._open:
            raise ComponentError(
                f"component {component} registers after notifications have begun: register in its start"
            )

    def begin_at(self, revision: int) -> None:
        """Everything up to `revision` is already in the components: they have started from a vault that has it."""
        if self._open:
            raise ComponentError(f"notifications have begun at {self.handled}: they can't begin at {revision} again")
        self.handled = revision
        for values in self._values.values():
            for value in values:
                value.complete(revision)

    def open(self) -> None:
        """All components have started: from now on listeners may be notified."""
        self._open = True

    def close(self, reason: str) -> None:
        """End notifications, and all waits for values."""
        self._open = False
        for values in self._values.values():
            for value in values:
                value.fail(reason)

    async def notify(self, notification: Notification) -> None:
        """Return when every listener has handled the revision. Raises ListenerFailed, NotStartedYet."""
        if self._failure is not None:
            raise self._failure
        if not self._open:
            raise NotStartedYet(f"revision {notification.revision} is notified before all components have started")
        new = notification.revision
        if new <= self.handled:
            raise ComponentError(f"revision {new} is notified after {self.handled}: each once, in order")
        if notification.last and self._values:
            for component in self._values.keys() - self._listeners.keys():
                self._complete(component, notification.revision)
        waiting = [rest for each in self._listeners.items() if (rest := self._begin(*each, notification)) is not None]
        if len(waiting) == 1:
            await waiting[0]
        elif waiting:
            await asyncio.gather(*waiting)
        if self._failure is not None:
            raise self._failure
        if notification.last:
            self.handled = notification.revision

    def _begin(
        self, component: str, listeners: Sequence[Listener], notification: Notification
    ) -> Coroutine[Any, Any, None] | None:
        """Calls the listeners of one component, in order. Returns None if none of them has to wait; otherwise a
        coroutine with the remaining work, which begins with the first listener that waits.

        A failure is recorded in `_failure`. After the last part of a notification, the values of the component are
        complete. Components are notified concurrently, because one may wait for a value of another. The caller has
        already completed the values of components without listeners."""
        try:
            for number, listener in enumerate(listeners, 1):
                answer = listener(notification)
                if answer is not None:
                    return self._finish(component, answer, listeners[number:], notification)
        except Exception as error:
            self._failed(component, notification.revision, error)
        else:
            self._notified(component, notification)
        return None

    async def _finish(
        self, component: str, answer: Awaitable[None], others: Sequence[Listener], notification: Notification
    ) -> None:
        """The rest of `_begin`: awaits `answer`, then calls the other listeners."""
        try:
            await answer
            for listener in others:
                later = listener(notification)
                if later is not None:
                    await later
        except Exception as error:
            self._failed(component, notification.revision, error)
        else:
            self._notified(component, notification)

    def _notified(self, component: str, notification: Notification) -> None:
        if notification.last and self._values:
            self._complete(component, notification.revision)

    def _failed(self, component: str, revision: int, error: Exception) -> None:
        """The first failure stops the node; waiters for a value of this component get an error."""
        failure = ListenerFailed(component, revision, error)
        failure.__cause__ = error
        self._failure = self._failure or failure
        for value in self._values.get(component, ()):
            value.fail(f"it could not handle revision {revision}: {error}")

    def _complete(self, component: str, revision: int) -> None:
        for value in self._values.get(component, ()):
            value.complete(revision)
