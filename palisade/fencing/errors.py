"""What can go wrong here, as one tree."""

from __future__ import annotations

from palisade.base.errors import PalisadeError


class FencingError(PalisadeError):
    """Root. `retry` says whether the same call may succeed later, with nothing changed by hand."""

    retry = False


class InvariantBroken(FencingError):
    """A state that the protocol rules out: a mistake in the program. The node must stop, for it may answer wrongly."""


class NotLeading(FencingError):
    """Only the leader of a term, between `begin_term` and `end_term`, does this: ask the leader."""

    retry = True


def check(holds: bool, what: str) -> None:
    """Raises InvariantBroken unless it holds."""
    if not holds:
        raise InvariantBroken(what)
