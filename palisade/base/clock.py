"""The clock of a real machine: CLOCK_BOOTTIME if available, which continues while the machine is suspended."""

from __future__ import annotations

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """Seconds since the machine was booted; wall time only for labels."""

    def now(self) -> float:
        return time.clock_gettime(_CLOCK)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
