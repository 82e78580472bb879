"""How much of the log is kept: what the state machine has on disk may go, but not all of it at once.

A follower that was away for a moment is brought up from the log; only one that was away for longer needs a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

ARRIVED_S = 10.0
"""How long the log waits for a follower that has got a snapshot."""


@dataclass(frozen=True, slots=True)
class LogRetention:
    """`entries` stay behind what is on disk; nothing is removed before as many again have come together."""

    entries: int = 10_000

    def __post_init__(self) -> None:
        if self.entries < 1:
            raise ValueError(f"a log keeps at least 1 entry, not {self.entries}")


def compaction_target(
    retention: LogRetention, *, first: int, last: int, durable: int, needed: int | None
) -> int | None:
    """The index that becomes the base of the log, or None while it is not worth it.

    `durable`: what the state machine has on disk. `needed`: the oldest index that somebody is being brought up from.
    """
    target = min(durable, last - retention.entries)
    if needed is not None:
        target = min(target, needed)
    return target if target - first >= retention.entries else None


class Arrivals:
    """Followers that hold a new snapshot, and not yet what the log had when it arrived.

    That much of the log is kept for each of them, for a bounded time: on a busy group it would be compacted before the
    follower has fetched it, and another snapshot would have to follow the first.
    """

    def __init__(self) -> None:
        self._goals: dict[str, tuple[int, float]] = {}

    def note(self, follower: str, last: int, now: float) -> None:
        """It holds a snapshot now; the log ends at `last`."""
        self._goals[follower] = (last, now + ARRIVED_S)

    def needed(self, match_of: Callable[[str], int | None], now: float) -> int | None:
        """The oldest index behind which one of them goes on. `match_of`: what a follower is known to hold."""
        oldest: int | None = None
        for follower, (goal, until) in list(self._goals.items()):
            match = match_of(follower)
            if match is None or match >= goal or now >= until:
                del self._goals[follower]
            elif oldest is None or match < oldest:
                oldest = match
        return oldest
