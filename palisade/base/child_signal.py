"""Signals to a child process of asyncio, without a race for its exit code.

`send_signal`, `terminate` and `kill` of asyncio's `Process` call `waitpid` first (`subprocess.Popen.send_signal`). If
the process has just ended, that takes the exit code away from asyncio, which then warns of an "unknown child process"
and reports 255. Ctrl-C on a terminal makes this likely, because it reaches the child too.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress


def signal_child(process: asyncio.subprocess.Process, number: int) -> None:
    """Does nothing if the process has ended."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)
