"""Errors of fencing. One tree."""

from __future__ import annotations

from palisade.base.errors import PalisadeError


class FencingError(PalisadeError):
    """Root. `retry`: the same call may succeed later without intervention."""

    retry = False


class InvariantBroken(FencingError):
    """A state that the protocol excludes: a bug. The node must stop, because it could give wrong answers."""


class NotLeading(FencingError):
    """Only a leader, between `begin_term` and `end_term`, can do this. Ask the leader."""

    retry = True


def check(holds: bool, what: str) -> None:
    """Raises InvariantBroken unless `holds`."""
    if not holds:
        raise InvariantBroken(what)
