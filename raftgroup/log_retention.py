"""How much of the log is kept: entries whose effect is durable in the state machine may be removed, except a tail.

A follower that was away briefly catches up from the log; only one that was away for longer needs a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

ARRIVED_S = 10.0
"""How long the log is kept for a follower that has received a snapshot."""


@dataclass(frozen=True, slots=True)
class LogRetention:
    """Keeps `entries` entries before the durable index; removes only when as many again have accumulated."""

    entries: int = 10_000

    def __post_init__(self) -> None:
        if self.entries < 1:
            raise ValueError(f"a log keeps at least 1 entry, not {self.entries}")


def compaction_target(
    retention: LogRetention, *, first: int, last: int, durable: int, needed: int | None
) -> int | None:
    """The new base index of the log, or None if compaction is not worthwhile yet.

    `durable`: the durable index of the state machine. `needed`: the oldest index from which a follower is catching up.
    """
    target = min(durable, last - retention.entries)
    if needed is not None:
        target = min(target, needed)
    return target if target - first >= retention.entries else None


class Arrivals:
    """Followers that have installed a snapshot, and not yet the log entries up to the end at that moment.

    These entries are kept for each of them, for a bounded time: a busy group would otherwise compact them before the
    follower has fetched them, and another snapshot would have to follow the first.
    """

    def __init__(self) -> None:
        self._goals: dict[str, tuple[int, float]] = {}

    def note(self, follower: str, last: int, now: float) -> None:
        """It has installed a snapshot; the log ends at `last`."""
        self._goals[follower] = (last, now + ARRIVED_S)

    def needed(self, match_of: Callable[[str], int | None], now: float) -> int | None:
        """The oldest index after which one of them continues. `match_of`: the index up to which a follower holds the
        log.
        """
        oldest: int | None = None
        for follower, (goal, until) in list(self._goals.items()):
            match = match_of(follower)
            if match is None or match >= goal or now >= until:
                del self._goals[follower]
            elif oldest is None or match < oldest:
                oldest = match
        return oldest
