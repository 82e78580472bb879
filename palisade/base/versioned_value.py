"""A versioned value with waiting: `await value.at(revision)` returns it as of that revision.

A waiter gets the value as of exactly the requested revision, or the error that kept the owner from reaching it. No
waiter waits for an owner that has failed or stopped.
"""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from palisade.base.start_order import ComponentError
from palisade.base.version_history import REVISIONS_KEPT, Versions

T = TypeVar("T")


class ValueFailed(ComponentError):
    """The owner of the value could not handle a revision; the node is stopping."""


class VersionedValue(Generic[T]):
    """Owned by the component `owner`, which alone calls `set`; `Listeners` completes each revision."""

    def __init__(self, owner: str, initial: T, completed: int = 0, *, kept: int = REVISIONS_KEPT) -> None:
        self.owner = owner
        self._versions = Versions(initial, completed, kept=kept)
        self._waiting: dict[int, list[asyncio.Future[None]]] = {}
        self._failure: ValueFailed | None = None

    @property
    def completed(self) -> int:
        return self._versions.completed

    @property
    def latest(self) -> T:
        """For readers without a revision; may change with the next revision."""
        return self._versions.latest

    def set(self, revision: int, value: T) -> None:
        """Called within the owner's listener of `revision`."""
        self._versions.set(revision, value)

    def complete(self, revision: int) -> None:
        self._versions.complete(revision)
        if self._waiting:
            for awaited in sorted(each for each in self._waiting if each <= revision):
                for future in self._waiting.pop(awaited):
                    if not future.done():
                        future.set_result(None)

    def fail(self, reason: str) -> None:
        """No further revision will be reached. A second call has no effect."""
        if self._failure is not None:
            return
        self._failure = ValueFailed(f"{self.owner} stays at revision {self.completed}: {reason}")
        for futures in self._waiting.values():
            for future in futures:
                if not future.done():
                    future.set_exception(ValueFailed(str(self._failure)))
        self._waiting.clear()

    async def at(self, revision: int) -> T:
        """The value as of `revision`, once its owner has reached it. Raises TokenOutdated, ValueFailed."""
        if revision > self._versions.completed:
            if self._failure is not None:
                raise ValueFailed(str(self._failure))
            reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(revision, []).append(reached)
            await reached
        return self._versions.at(revision)
