"""What may enter the vault of a node that serves fenced reads: no strict change before it is released. Pure.

Whoever enters revisions asks first, and tells the gate when it is done: a node that does not serve has its gate open,
and must not begin to serve while something is on its way in that the gate would have kept out by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from palisade.vault.change import Revision


class ApplyGate(Protocol):
    def enter(self, revisions: Sequence[Revision]) -> int:
        """How many of them, from the first on, may enter now. Unless it is 0, `leave` has to follow."""
        ...

    def enter_leap(self, revision: int) -> bool:
        """Whether everything up to `revision` may enter now. If so, `leave` has to follow."""
        ...

    def leave(self) -> None: ...

    async def changed(self, timeout_s: float) -> None:
        """Wait until more may enter than did, or for that long."""
        ...

    def allowed(self) -> int | None:
        """Up to which revision everything may enter; None: there is no bound."""
        ...


class OpenGate:
    """Of a vault that nobody reads through a fence."""

    def enter(self, revisions: Sequence[Revision]) -> int:
        return len(revisions)

    def enter_leap(self, revision: int) -> bool:
        return True

    def leave(self) -> None:
        """Nobody waits for it."""

    async def changed(self, timeout_s: float) -> None:
        """It never was closed."""

    def allowed(self) -> int | None:
        return None
