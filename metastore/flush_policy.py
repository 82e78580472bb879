"""When the writes in memory are due to go into the file. Pure.

A flush costs an fsync and the copying of every page that it touches, so it pays to wait; what waits costs memory,
and is replayed from the log after a crash.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FlushPolicy:
    """Due when one of the bounds is reached. `age_s`: since the first write that waits was noticed."""

    entries_max: int = 65_536
    bytes_max: int = 16 * 1024 * 1024
    age_s: float = 2.0

    def is_due(self, entries: int, size_bytes: int, age_s: float) -> bool:
        return entries > 0 and (entries >= self.entries_max or size_bytes >= self.bytes_max or age_s >= self.age_s)
