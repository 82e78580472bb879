"""A value by revision, for each revision that is still stored. Pure.

The revision is the *causality token*: a component that handles the change of revision r can read the value of another
component as of exactly r. A value is constant between two changes, so only the changes are stored.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Generic, TypeVar

from palisade.base.start_order import ComponentError

T = TypeVar("T")

REVISIONS_KEPT = 1_000
"""How far a token may trail the newest revision. A component that handles a revision reads that one, so few suffice."""


class TokenOutdated(ComponentError):
    """The value as of that revision is no longer stored. Use the token of the revision that is being handled."""


class TokenNotReached(ComponentError):
    """The value is not at that revision yet: wait for it."""


class Versions(Generic[T]):
    """`completed` is the newest revision whose value is final; later revisions cannot be read."""

    __slots__ = ("_changed_at", "_kept", "_oldest", "_values", "completed")

    def __init__(self, initial: T, completed: int = 0, *, kept: int = REVISIONS_KEPT) -> None:
        self.completed = completed
        self._changed_at = [completed]
        self._values = [initial]
        self._oldest = completed
        self._kept = kept

    @property
    def latest(self) -> T:
        return self._values[-1]

    def set(self, revision: int, value: T) -> None:
        """Set the value from `revision` on, which is not completed yet. The last value set for a revision counts."""
        if revision <= self.completed:
            raise ValueError(f"revision {revision} is completed (the newest is {self.completed}): it never changes")
        if self._changed_at[-1] > revision:
            raise ValueError(f"revision {revision} was set after {self._changed_at[-1]}: set revisions in order")
        if self._changed_at[-1] == revision:
            self._values[-1] = value
        else:
            self._changed_at.append(revision)
            self._values.append(value)

    def complete(self, revision: int) -> None:
        """Everything up to `revision` is final."""
        if revision < self.completed:
            raise ValueError(f"revision {revision} cannot follow revision {self.completed}: revisions never go back")
        self.completed = revision
        self._forget(revision - self._kept)

    def _forget(self, below: int) -> None:
        if below <= self._oldest:
            return
        self._oldest = below
        unneeded = bisect_right(self._changed_at, below) - 1
        if unneeded > 0:
            del self._changed_at[:unneeded], self._values[:unneeded]

    def at(self, revision: int) -> T:
        """The value as of `revision`. Raises TokenNotReached, TokenOutdated."""
        if revision > self.completed:
            raise TokenNotReached(f"the value is at revision {self.completed}, not at {revision} yet: wait for it")
        if revision < self._oldest:
            raise TokenOutdated(
                f"the value as of revision {revision} is no longer stored, {self._oldest} is the oldest one: "
                "request it as of the revision that is being handled"
            )
        return self._values[bisect_right(self._changed_at, revision) - 1]
