"""The age of this process, because the time that a command needs to start counts as silence."""

from __future__ import annotations

import os
import time
from pathlib import Path

START_FIELD = 19
"""`starttime` in /proc/PID/stat (proc(5)), counted after the name of the program, which may contain spaces."""
STAT = Path("/proc/self/stat")


def process_age_s() -> float:
    """In seconds; 0 if the system does not provide it."""
    try:
        ticks = int(STAT.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[START_FIELD])
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0
    return max(0.0, age_s)
