"""Invariants that are checked in production: a broken one raises, and the node stops (style 7).

Not a refusal: it is never turned into a result, because the other replicas do not see what this one sees.
"""

from __future__ import annotations

from palisade.base.errors import PalisadeError


class InvariantViolated(PalisadeError):
    """This replica can't trust its own state. Stop the node, compare digests with another replica, restore it."""

    code = "invariant-violated"


def check(holds: object, message: str) -> None:
    if not holds:
        raise InvariantViolated(message)
