"""The clock of a real machine: CLOCK_BOOTTIME if available, which continues while the machine is suspended."""

from __future__ import annotations

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """Seconds since the machine was booted; wall time only for labels."""

    wall_ns = staticmethod(time.time_ns)

    def now(self) -> float:
        return time.clock_gettime(_CLOCK)
