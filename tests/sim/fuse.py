"""Death or a pause of a process between two callbacks of its loop, so where any task awaits anything (issue 5, F11).

A loop runs what is ready in turns; who is killed from outside is killed between two of them. A fuse counts what is put
on the loop from now on, and puts the death of its process, or its pause, in that order: what is ahead of it in the turn
is done, what is behind it never, or when the process goes on. Nothing of it is left when it has burnt down.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.simulation import Process

CALLS_MAX = 120
FUSE = "fuse"
"""Of a loop: the one that was lit last, until its process has died of it, or was paused."""


def light_fuse(process: Process, calls: int, act: Callable[[], None]) -> None:
    """Behind so many calls from now. `act` kills or pauses it; a later fuse takes the place of one that burns."""
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
    """Also where it has burnt down, and what it is for has not had its turn."""
    for name in ("call_soon", FUSE):
        vars(process.loop).pop(name, None)
