"""A fenced read as a sequence of steps: read, wait for a release, then apply the policy of the region (F7). Pure.

A thread that sleeps and a task that awaits run the same steps. If the vault must not answer, the policy of the region
decides: nothing possibly stale is ever an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from palisade.base.errors import TRY_AGAIN
from palisade.base.interval import check_seconds
from palisade.base.key_text import key_text
from palisade.vault.change import Item
from palisade.vault.errors import Denied, Fenced, NotReached, Pending, ReadRefused
from palisade.vault.regions import Policy, Region
from palisade.vault.snapshot_reads import ReadOrigin, Rows, ShownPage, Unapplied, Unreleased

PAUSE_S_FIRST, PAUSE_S_MAX = 0.0002, 0.002
"""The interval between two checks of the fence page: a release takes about one round trip."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PolicyWait:
    """Continue after `seconds`, or, if changes are signalled, on a change, after `most` seconds at the latest. The
    driver sends the current time."""

    seconds: float
    most: float


@dataclass(frozen=True, slots=True)
class Fetch:
    """Read from the cluster; the driver sends a Fetched."""

    start: bytes


@dataclass(frozen=True, slots=True)
class Fetched:
    """The cluster's answer, or the error. `possible`: whether the reader can reach the cluster at all."""

    value: Any = None
    error: Exception | None = None
    possible: bool = True


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The vault must not be trusted; `reason` is why."""

    reason: str


Course = Generator[PolicyWait | Fetch, Any, T]
Look = Callable[[int], T | Unreleased | Unapplied | Unreachable]
"""Called with the revision that an earlier look of the same read has waited for (`Unapplied`); 0: the first look."""


class Reading(Protocol):
    """What the steps need from the reader."""

    def which(self) -> int:
        """A number that changes when the vault in this folder is replaced."""
        ...

    def released(self) -> int:
        """RR according to the fence page."""
        ...

    def applied(self) -> int:
        """LV according to the fence page."""
        ...

    def covering(self, start: bytes, end: bytes | None) -> Region | None:
        """The region of all keys of the range; None: there may be several."""
        ...


def read_one(reading: Reading, key: bytes, look: Look[ShownPage], now: float, wait_s: float) -> Course[ShownPage]:
    """Of one key. Raises Fenced, Pending, Denied."""
    outcome = yield from _settled(reading, look, now, wait_s)
    if not isinstance(outcome, Unreleased | Unapplied | Unreachable):
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
    """Of a range. A default is for one key, so a range in a SAFE_DEFAULT region fails closed. Raises Fenced, Pending,
    Denied.
    """
    outcome = yield from _settled(reading, look, now, wait_s)
    if not isinstance(outcome, Unreleased | Unapplied | Unreachable):
        return outcome
    refused = partial(_refusal, f"the range from {key_text(start)}", outcome, wait_s)
    found: Rows = yield from _fetched(start, reading.covering(start, end), refused)
    return replace(found, origin=ReadOrigin.QUORUM) if isinstance(found, Rows) else found


def reach(revision: int, lv: Callable[[], int], now: float, timeout_s: float) -> Course[int]:
    """Until LV reaches `revision`. Raises NotReached, and TypeError or ValueError for an argument that is no number."""
    if not isinstance(revision, int):
        raise TypeError(f"revision must be a whole number, not {type(revision).__name__}")
    check_seconds("timeout_s", timeout_s)
    until, pause = now + timeout_s, PAUSE_S_FIRST
    while (there := lv()) < revision:
        if now >= until:
            raise NotReached(
                f"the vault is at revision {there} and did not reach {revision} within {timeout_s} s: wait longer, or "
                "check that its node runs (palisade status)"
            )
        now = yield PolicyWait(min(pause, until - now), until - now)
        pause = min(pause * 2, PAUSE_S_MAX)
    return there


def _settled(
    reading: Reading, look: Look[T], now: float, wait_s: float
) -> Course[T | Unreleased | Unapplied | Unreachable]:
    """The result once it is released; or the last obstacle when the wait is over."""
    until, pause = now + wait_s, PAUSE_S_FIRST
    vault, outcome = reading.which(), look(0)
    while isinstance(outcome, Unreleased | Unapplied):
        reached = (reading.released() if isinstance(outcome, Unreleased) else reading.applied()) >= outcome.revision
        if reading.which() != vault:
            vault, outcome = reading.which(), look(0)
        elif reached and isinstance(outcome, Unreleased):
            found: T = outcome.found
            return found
        elif reached:
            outcome = look(outcome.revision)
        elif now >= until:
            break
        else:
            now = yield PolicyWait(min(pause, until - now), until - now)
            pause = min(pause * 2, PAUSE_S_MAX)
    return outcome


def _refusal(what: str, outcome: Unreleased | Unapplied | Unreachable, wait_s: float, more: str = "") -> ReadRefused:
    if isinstance(outcome, Unreachable):
        return Fenced(f"{what} can't be read from the vault now: {outcome.reason}{more}{TRY_AGAIN}")
    if isinstance(outcome, Unapplied):
        change = f"a change at revision {outcome.revision}, which the vault has not applied within {wait_s} s"
        return Pending(f"{what} has {change}, so it can't be read as of one revision{more}{TRY_AGAIN}")
    change = f"a change at revision {outcome.revision} that is not released yet"
    return Pending(f"{what} has {change}, after a wait of {wait_s} s{more}{TRY_AGAIN}")


def _fetched(start: bytes, rule: Region | None, refused: Callable[..., ReadRefused]) -> Course[Any]:
    """`refused` creates the error to raise. No frame keeps the error in a variable: the error and its traceback would
    form a cycle, which keeps everything in the caller's frames alive until the next garbage collection."""
    if rule is None or rule.policy not in (Policy.REFETCH, Policy.DENY):
        raise refused()
    fetched: Fetched = yield Fetch(start)
    if fetched.possible and fetched.error is None:
        return fetched.value
    why = f"reading from the cluster failed: {fetched.error}" if fetched.possible else "this reader has no fetch"
    if rule.policy is Policy.DENY:
        raise Denied(f"{refused()}; {why}. The policy of the region {rule.name} denies such reads") from fetched.error
    raise refused(more=f"; {why}") from fetched.error
