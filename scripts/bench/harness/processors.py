"""Placement of processes on the processors of this machine, where a figure would otherwise depend on the scheduler."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def own_processor(pid: int, others: Iterable[int]) -> Iterator[None]:
    """While it runs, `pid` has one processor to itself; `others`, this process and those that it starts share the rest.

    Without effect on a machine with one processor. A thread started by `others` keeps the placement of its parent.
    """
    allowed = os.sched_getaffinity(0)
    own = max(allowed)
    rest = allowed - {own} or allowed
    placed = {pid: {own}} | dict.fromkeys([os.getpid(), *others], rest)
    try:
        for each, processors in placed.items():
            _place(each, processors)
        yield
    finally:
        for each in placed:
            _place(each, allowed)


def _place(pid: int, processors: set[int]) -> None:
    """All threads of the process; those that have ended are left out."""
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), processors)
