"""Invariants checked in production: a violated one raises, and the node stops.

A violation is never turned into a result, because other replicas do not have it.
"""

from __future__ import annotations

from palisade.base.errors import PalisadeError


class InvariantViolated(PalisadeError):
    """This replica cannot trust its state. Stop the node, compare digests with another replica, restore it."""

    code = "invariant-violated"


def check(holds: object, message: str) -> None:
    if not holds:
        raise InvariantViolated(message)
