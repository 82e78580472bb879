"""Runs the command of `palisade lock` and `palisade elect` while a claim is held.

If the lease is lost or this process is stopped, the command gets SIGTERM and, `GRACE_S` later, SIGKILL. On Linux it
also gets SIGTERM if this process is killed.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence

from palisade.base.child_signal import signal_child
from palisade.base.network_reason import reason_of

GRACE_S = 5.0
NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit codes of a command that cannot be started, the same as in shells."""
_PR_SET_PDEATHSIG = 1


async def run_held(command: Sequence[str], environment: Mapping[str, str], ends: Callable[[], None]) -> int:
    """The exit code of the command, or 128 + the signal that ended it. `environment`: additional variables. `ends` is
    called when the command gets SIGTERM."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command, env={**os.environ, **environment}, preexec_fn=_end_with_parent
        )
    except OSError as error:
        print(f"palisade: {command[0]} cannot be started: {reason_of(error)}", file=sys.stderr)
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
    try:
        code = await process.wait()
    except asyncio.CancelledError:
        ends()
        await _end(process)
        raise
    return code if code >= 0 else 128 - code


async def _end(process: asyncio.subprocess.Process) -> None:
    signal_child(process, signal.SIGTERM)
    try:
        async with asyncio.timeout(GRACE_S):
            await process.wait()
    except TimeoutError:
        signal_child(process, signal.SIGKILL)
        await process.wait()


def _end_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
