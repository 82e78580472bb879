"""A clock whose time passes only when a test advances it."""

from __future__ import annotations

WALL_S = 1_700_000_000.0


class Clock:
    """In place of a `SystemClock`, in seconds; wall time runs along."""

    def __init__(self, time: float = 1000.0) -> None:
        self.time = time

    def now(self) -> float:
        return self.time

    def wall(self) -> float:
        return WALL_S + self.time

    def wall_ns(self) -> int:
        return int(self.wall() * 1000) * 1_000_000

    def advance(self, seconds: float) -> None:
        self.time += seconds
