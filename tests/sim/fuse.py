"""Kills or pauses a process between two callbacks of its loop, so at any await of a task (issue 5, F11).

A loop runs its ready callbacks in turns; a kill from outside happens between two turns. A fuse counts callbacks that
are scheduled from now on, and schedules the kill or pause of its process among them: earlier callbacks of the turn run,
later ones never, or when the process resumes. A fuse that has fired leaves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.simulation import Process

CALLS_MAX = 120
FUSE = "fuse"
"""Of a loop: the latest one, until its process has died of it, or was paused."""


def light_fuse(process: Process, calls: int, act: Callable[[], None]) -> None:
    """After so many callbacks from now. `act` kills or pauses the process; a later fuse replaces an active one."""
    loop: Any = process.loop
    put = type(loop).call_soon
    left = calls

    def burnt_down() -> None:
        if vars(loop).get(FUSE) is counted:
            put_out(process)
            act()

    def counted(callback: Any, *arguments: Any, context: Any = None) -> Any:
        nonlocal left
        left -= 1
        if not left:
            del loop.call_soon
            put(loop, burnt_down)
        return put(loop, callback, *arguments, context=context)

    loop.call_soon = counted
    vars(loop)[FUSE] = counted


def put_out(process: Process) -> None:
    """Also if it has fired, and its callback has not run yet."""
    for name in ("call_soon", FUSE):
        vars(process.loop).pop(name, None)
