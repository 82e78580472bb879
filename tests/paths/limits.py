"""The most files and functions that one request may enter, and the goals. The only place for these numbers.

Lower a limit in the commit that shortens the path. Limits are measured numbers (`scripts/paths`) plus about 3 percent:
which thread wins a race decides on a few functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatch


@dataclass(frozen=True, slots=True)
class Most:
    """None: not limited."""

    files: int
    functions: int | None = None


@dataclass(frozen=True, slots=True)
class Limit:
    """At one node, by whether authorization is on. `goal` holds for both.

    At the node that is asked: from the request to its answer. At another node: until the effects of the request end.
    """

    journey: str
    role: str
    off: Most
    on: Most
    goal: Most | None = None


LIMITS = (
    Limit("v3-put", "leader", off=Most(47, 162), on=Most(71, 225), goal=Most(24, 100)),
    Limit("v3-put", "follower", off=Most(60, 173), on=Most(60, 173)),
    Limit("strict-put", "leader", off=Most(68, 235), on=Most(84, 292), goal=Most(36)),
    Limit("strict-put", "follower", off=Most(64, 205), on=Most(64, 205)),
    Limit("stream-put", "leader", off=Most(43, 149), on=Most(58, 203)),
    Limit("fenced-get", "follower", off=Most(12, 34), on=Most(28, 76)),
)

DIFFERENT_FILES = {"v3-put": 7, "strict-put": 2, "follower-put": 2, "stream-put": 2, "fenced-get": 8}
"""Files that a request enters only with authorization on, or only with it off, except `AUTHORIZATION`; at the node that
is asked, from the request to its answer. The goal is 0: authorization is a step of the same path."""

AUTHORIZATION = ("*authorization*", "*catalog/keys.py", "*catalog/permissions.py", "*vault/*", "*fenced_reads.py")
"""Files that authorization itself needs: it reads its rows from the vault, through the fence."""


def is_of_authorization(file: str) -> bool:
    return any(fnmatch(file, pattern) for pattern in AUTHORIZATION)
