"""Which revisions may be applied to a vault that serves fenced reads: no strict change before its release. Pure.

A caller enters before it applies revisions, and leaves when it is done. The gate of a node that does not serve is open;
the node must not begin to serve while revisions are being applied that the closed gate would not admit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from palisade.vault.change import Revision


class ApplyGate(Protocol):
    def enter(self, revisions: Sequence[Revision]) -> int:
        """How many of them, from the first on, may be applied now. Unless it is 0, call `leave` afterwards."""
        ...

    def enter_leap(self, revision: int) -> bool:
        """Whether everything up to `revision` may be applied now. If so, call `leave` afterwards."""
        ...

    def leave(self) -> None: ...

    async def changed(self, timeout_s: float) -> None:
        """Wait until more may be applied, at most `timeout_s`."""
        ...

    def allowed(self) -> int | None:
        """Up to which revision everything may be applied; None: no bound."""
        ...


class OpenGate:
    """For a vault without fenced readers."""

    def enter(self, revisions: Sequence[Revision]) -> int:
        return len(revisions)

    def enter_leap(self, revision: int) -> bool:
        return True

    def leave(self) -> None:
        """Nothing waits for it."""

    async def changed(self, timeout_s: float) -> None:
        """It is never closed."""

    def allowed(self) -> int | None:
        return None
