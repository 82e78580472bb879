"""The most files and functions that one request may enter, and the goals. The only place for these numbers.
`python -m tests.paths.limits` prints them; `scripts/check` runs it.

Lower a limit in the commit that shortens the path. A limit is the most that several runs of `scripts/paths`
found, and two functions more; for what followers do after the answer 10 percent more. The load of the machine decides
whether some functions are entered before the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    Limit("v3-put", "leader", off=Most(23, 99), on=Most(24, 100), goal=Most(24, 100)),
    Limit("v3-put", "follower", off=Most(43, 138), on=Most(43, 138)),
    Limit("strict-put", "leader", off=Most(35, 161), on=Most(36, 162), goal=Most(36)),
    Limit("strict-put", "follower", off=Most(46, 170), on=Most(46, 170)),
    Limit("follower-put", "follower", off=Most(18, 72), on=Most(20, 74)),
    Limit("stream-put", "leader", off=Most(25, 106), on=Most(27, 109)),
    Limit("fenced-get", "follower", off=Most(8, 17), on=Most(9, 20)),
)

DIFFERENT_FILES = {"v3-put": 0, "strict-put": 0, "follower-put": 0, "stream-put": 0, "fenced-get": 0}
"""Files that a request enters only with authorization on, or only with it off, except `AUTHORIZATION`; at the node that
is asked, from the request to its answer. The goal is 0: authorization is a step of the same path."""

AUTHORIZATION = (
    "*authorization*",
    "*palisade/api/stream/session_auth.py",
    "*palisade/catalog/keys.py",
    "*palisade/catalog/permissions.py",
    "*vault/*",
    "*fenced_reads.py",
)
"""Files that authorization itself needs: it reads its rows from the vault, through the fence."""


def is_of_authorization(file: str) -> bool:
    return any(fnmatch(file, pattern) for pattern in AUTHORIZATION)


def table(limits: Sequence[Limit] = LIMITS) -> list[str]:
    """One line per limit: its files and functions with authorization off and on, and the goal."""
    lines = [f"{'files functions per request':28}{'off':>10}{'on':>10}{'goal':>10}"]
    for each in limits:
        columns = "".join(f"{_shown(most):>10}" for most in (each.off, each.on, each.goal))
        lines.append(f"{each.journey} at the {each.role}".ljust(28) + columns.rstrip())
    different = ", ".join(f"{journey} {files}" for journey, files in DIFFERENT_FILES.items())
    return [*lines, f"files that differ with authorization (goal 0): {different}"]


def _shown(most: Most | None) -> str:
    if most is None:
        return ""
    return f"{most.files}" if most.functions is None else f"{most.files} {most.functions}"


if __name__ == "__main__":
    print("\n".join(table()))
