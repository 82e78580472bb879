"""How much of the log is kept: what the state machine has on disk may go, but not all of it at once.

A follower that was away for a moment is brought up from the log; only one that was away for longer needs a snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass


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
