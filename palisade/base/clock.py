"""The clock of a real machine: CLOCK_BOOTTIME if available, which continues while the machine is suspended."""

from __future__ import annotations

import time
from functools import partial

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """Seconds since the machine was booted; wall time only for labels. Both are read without a Python function: a put
    reads the clock a dozen times."""

    now = staticmethod(partial(time.clock_gettime, _CLOCK))
    wall_ns = staticmethod(time.time_ns)
