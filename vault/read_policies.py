"""A fenced read as a course of steps: look, wait for a release, then what the policy of the region says (F7). Pure.

The same course is taken by a thread that sleeps and by a task that awaits. What can't be answered from the vault is
decided by the policy of its region: nothing that may be stale is ever an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from palisade.base.key_text import key_text
from palisade.vault.change import Item
from palisade.vault.errors import Denied, Fenced, NotReached, Pending, ReadRefused
from palisade.vault.regions import Policy, Region
from palisade.vault.snapshot_reads import ReadOrigin, Rows, ShownPage, Unreleased

PAUSE_S_FIRST, PAUSE_S_MAX = 0.0002, 0.002
"""Between two looks at the fence page: a release takes a round trip or so."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PolicyWait:
    """Go on after so many seconds, or, where it is told that something has changed, then, and after `most` at the
    latest; what comes back is the time then."""

    seconds: float
    most: float


@dataclass(frozen=True, slots=True)
class Fetch:
    """Ask the cluster; what comes back is a Fetched."""

    start: bytes


@dataclass(frozen=True, slots=True)
class Fetched:
    """What the cluster said, or why it did not. `possible`: whether there was anybody to ask."""

    value: Any = None
    error: Exception | None = None
    possible: bool = True


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The fence is: why."""

    reason: str


Course = Generator[PolicyWait | Fetch, Any, T]
Look = Callable[[], T | Unreleased | Unreachable]


class Reading(Protocol):
    """What a course asks of its reader."""

    def which(self) -> int:
        """Another number for another vault in the same place."""
        ...

    def released(self) -> int:
        """RR, as the fence page says."""
        ...

    def covering(self, start: bytes, end: bytes | None) -> Region | None:
        """The region that all keys of the range are in; None: they may be in several."""
        ...


def read_one(reading: Reading, key: bytes, look: Look[ShownPage], now: float, wait_s: float) -> Course[ShownPage]:
    """Of one key. Raises Fenced, Pending, Denied."""
    outcome = yield from _settled(reading, look, now, wait_s)
    if not isinstance(outcome, Unreleased | Unreachable):
        return outcome
    rule = reading.covering(key, key + b"\0")
    if rule is not None and rule.policy is Policy.SAFE_DEFAULT:
        return ShownPage(Item(key, rule.default, 0, 0, 0, 0), 0, ReadOrigin.DEFAULT)
    refused = partial(_refusal, f"the key {key_text(key)}", outcome, wait_s)
    found: Item | Rows | None = yield from _fetched(key, rule, refused)
    if isinstance(found, Rows):
        return ShownPage(found.items[0] if found.items else None, found.revision, ReadOrigin.QUORUM)
    return ShownPage(found, 0, ReadOrigin.QUORUM)


def read_range(
    reading: Reading, start: bytes, end: bytes | None, look: Look[T], now: float, wait_s: float
) -> Course[T | Rows]:
    """Of a range. A default is of one key: a range of SAFE_DEFAULT fails closed. Raises Fenced, Pending, Denied."""
    outcome = yield from _settled(reading, look, now, wait_s)
    if not isinstance(outcome, Unreleased | Unreachable):
        return outcome
    refused = partial(_refusal, f"the range from {key_text(start)}", outcome, wait_s)
    found: Rows = yield from _fetched(start, reading.covering(start, end), refused)
    return replace(found, origin=ReadOrigin.QUORUM) if isinstance(found, Rows) else found


def reach(revision: int, lv: Callable[[], int], now: float, timeout_s: float) -> Course[int]:
    """Until LV is there. Raises NotReached."""
    until, pause = now + timeout_s, PAUSE_S_FIRST
    while (there := lv()) < revision:
        if now >= until:
            raise NotReached(
                f"the vault is at revision {there}, and was to be at {revision} within {timeout_s} s: wait longer, "
                "or look whether its node runs (palisade status)"
            )
        now = yield PolicyWait(min(pause, until - now), until - now)
        pause = min(pause * 2, PAUSE_S_MAX)
    return there


def _settled(reading: Reading, look: Look[T], now: float, wait_s: float) -> Course[T | Unreleased | Unreachable]:
    """What is found, once it is released; or what it would have been, when the wait is over."""
    until, pause = now + wait_s, PAUSE_S_FIRST
    vault, outcome = reading.which(), look()
    while isinstance(outcome, Unreleased):
        released = reading.released()
        if reading.which() != vault:
            vault, outcome = reading.which(), look()
        elif released >= outcome.revision:
            found: T = outcome.found
            return found
        elif now >= until:
            break
        else:
            now = yield PolicyWait(min(pause, until - now), until - now)
            pause = min(pause * 2, PAUSE_S_MAX)
    return outcome


def _refusal(what: str, outcome: Unreleased | Unreachable, wait_s: float, more: str = "") -> ReadRefused:
    if isinstance(outcome, Unreachable):
        return Fenced(f"{what} can't be read from the vault now: {outcome.reason}. Try again{more}")
    change = f"a change at revision {outcome.revision} that is not released yet"
    return Pending(f"{what} has {change}, {wait_s} s later: try again{more}")


def _fetched(start: bytes, rule: Region | None, refused: Callable[..., ReadRefused]) -> Course[Any]:
    """`refused` makes what is raised. No frame keeps it in a name: it would be in a cycle with its own traceback, and
    with it whatever the frames of its caller hold, until the interpreter looks for cycles."""
    if rule is None or rule.policy not in (Policy.REFETCH, Policy.DENY):
        raise refused()
    fetched: Fetched = yield Fetch(start)
    if fetched.possible and fetched.error is None:
        return fetched.value
    why = f"asking the cluster failed: {fetched.error}" if fetched.possible else "this reader has no way to ask"
    if rule.policy is Policy.DENY:
        raise Denied(
            f"{refused()}; {why}. The region {rule.name} says: where that is so, the answer is no"
        ) from fetched.error
    raise refused(more=f"; {why}") from fetched.error
