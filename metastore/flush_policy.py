"""Decides when the writes in memory are flushed to the file. Pure.

A flush costs an fsync and copies every page that it touches, so it pays to wait; waiting costs memory, and replay from
the log after a crash.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FlushPolicy:
    """Due when one of the limits is reached. `age_s`: since the first unflushed write was noticed."""

    entries_max: int = 65_536
    bytes_max: int = 16 * 1024 * 1024
    age_s: float = 2.0

    def is_due(self, entries: int, size_bytes: int, age_s: float) -> bool:
        return entries > 0 and (entries >= self.entries_max or size_bytes >= self.bytes_max or age_s >= self.age_s)
