"""The most files and functions that one request may enter, and the goals. The only place for these numbers.

Lower a limit in the commit that shortens the path. A limit is the most that several runs of `scripts/paths`
found; for what followers do after the answer 10 percent more, since that depends on the load of the machine.
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
    """At one node, by whether authorization is on. `goal` holds for both, apart from the files in `AUTHORIZATION`.

    At the node that is asked: from the request to its answer. At another node: until the effects of the request end.
    """

    journey: str
    role: str
    off: Most
    on: Most
    goal: Most | None = None


LIMITS = (
    Limit("v3-put", "leader", off=Most(47, 157), on=Most(60, 182), goal=Most(24, 100)),
    Limit("v3-put", "follower", off=Most(66, 192), on=Most(66, 192)),
    Limit("strict-put", "leader", off=Most(67, 229), on=Most(82, 286), goal=Most(36)),
    Limit("strict-put", "follower", off=Most(66, 204), on=Most(66, 204)),
    Limit("follower-put", "follower", off=Most(32, 101), on=Most(51, 160)),
    Limit("stream-put", "leader", off=Most(44, 152), on=Most(61, 191)),
    Limit("fenced-get", "follower", off=Most(8, 18), on=Most(17, 38)),
)

DIFFERENT_FILES = {"v3-put": 7, "strict-put": 2, "follower-put": 2, "stream-put": 2, "fenced-get": 8}
"""Files that a request enters only with authorization on, or only with it off, except `AUTHORIZATION`; at the node that
is asked, from the request to its answer. The goal is 0: authorization is a step of the same path."""

AUTHORIZATION = (
    "*authorization*",
    "*palisade/catalog/keys.py",
    "*palisade/catalog/permissions.py",
    "*vault/*",
    "*fenced_reads.py",
)
"""Files that authorization itself needs: it reads its rows from the vault, through the fence."""


def is_of_authorization(file: str) -> bool:
    return any(fnmatch(file, pattern) for pattern in AUTHORIZATION)
