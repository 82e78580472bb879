"""When a node has caught up: LM - LV is small enough to join the logical topology (R4). Pure.

LM moves while a node replays, so it is read again after each round (a replay up to the known LM). Termination does not
depend on the writers: rounds that did not reduce LM - LV are counted. The first `STUCK_ROUNDS` of them lead to one
snapshot. After it, each further one multiplies the acceptable difference by four; from the eighth on, the present
difference is acceptable.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

DIFFERENCE = 100
"""CONFIGURATION_CATCH_UP_DIFFERENCE of seed 001, where it is a constant; here it can be changed at any time."""
DIFFERENCE_MAX = 10**12
STUCK_ROUNDS = 3
STUCK_ROUNDS_MAX = 8


class Difference:
    """The acceptable LM - LV. A change also applies to the recovery in progress.

    `reach`: for a member whose vault moves by leaps, how far below LM the next leap can start (`flush_follower.py`).
    """

    __slots__ = ("_reach", "_value")

    def __init__(self, value: int = DIFFERENCE, reach: Callable[[], int] = lambda: 0) -> None:
        self._value = 0
        self._reach = reach
        self.value = value

    @property
    def value(self) -> int:
        """The effective difference."""
        return max(self._value, self._reach())

    @value.setter
    def value(self, value: int) -> None:
        """Raises ValueError."""
        if not 0 <= value <= DIFFERENCE_MAX:
            raise ValueError(
                f"the catch-up difference is a number of revisions from 0 to {DIFFERENCE_MAX}, not {value}"
            )
        self._value = value

    @property
    def chosen(self) -> int:
        """The configured value, without `reach`."""
        return self._value


class Next(enum.Enum):
    CAUGHT_UP = "caught up"
    REPLAY = "replay"
    SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True)
class CatchUpProgress:
    """`stuck`: rounds after which LM - LV was not smaller than before. `snapshots`: those taken because of them."""

    behind: int | None = None
    stuck: int = 0
    snapshots: int = 0


def after_round(progress: CatchUpProgress, behind: int) -> CatchUpProgress:
    """`behind`: LM - LV, read after the round."""
    came_closer = progress.behind is None or behind < progress.behind
    return CatchUpProgress(behind, progress.stuck if came_closer else progress.stuck + 1, progress.snapshots)


def after_snapshot(progress: CatchUpProgress) -> CatchUpProgress:
    """Rounds are counted anew; no second snapshot is taken because of them."""
    return CatchUpProgress(None, 0, progress.snapshots + 1)


def acceptable(progress: CatchUpProgress, difference: int) -> int:
    """The threshold, including its growth."""
    if not progress.snapshots or not progress.stuck:
        return difference
    if progress.stuck >= STUCK_ROUNDS_MAX and progress.behind is not None:
        return max(difference, progress.behind)
    return max(1, difference) << 2 * progress.stuck


def next_step(progress: CatchUpProgress, difference: int, *, behind: int) -> Next:
    if behind <= acceptable(progress, difference):
        return Next.CAUGHT_UP
    return Next.SNAPSHOT if progress.stuck >= STUCK_ROUNDS and not progress.snapshots else Next.REPLAY
