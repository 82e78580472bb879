"""`python -m tests.support.planted_ingester FAULT MODULE ...`: runs MODULE (a data node) with a fault planted in its
realtime segments, or with `kills_itself` alone.

`kills_itself`: with SIGKILL, at the step that its file names. Thus tests kill it between two steps that follow each
other at once. The faults prove that the counts of `realtime_ground.py` find what they are for.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from palisade.segments.leased_announcements import LeasedAnnouncements
from palisade.segments.realtime import RealtimeIngester
from palisade.segments.realtime_handoff import RealtimeHandOff
from palisade.segments.realtime_log import RealtimeLog
from tests.support.planting import data_dir, named, run_planted

ROWS = 20


def death_file(folder: str | Path) -> Path:
    """Names the step at which the process ends: `publish` or `discard`. Removed by it."""
    return Path(f"{folder}.dies")


def kills_itself() -> None:
    _before(RealtimeHandOff, "_publish", "publish")
    _before(RealtimeIngester, "discard", "discard")


def _before(owner: Any, method: str, step: str) -> None:
    original = getattr(owner, method)
    file = death_file(data_dir())

    async def mortal(self: Any, *arguments: Any) -> Any:
        if file.exists() and file.read_text("utf-8") == step:
            file.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return await original(self, *arguments)

    setattr(owner, method, mortal)


def forgets_its_last_rows() -> None:
    """Acknowledged rows are lost in a restart."""
    _reads(-ROWS)


def counts_its_last_rows_twice() -> None:
    """After a restart, as if a batch that was sent again were stored again."""
    _reads(ROWS)


def _reads(more: int) -> None:
    log: Any = RealtimeLog
    original = log.open

    async def opened(files: Any) -> Any:
        found = await original(files)
        found.rows += more
        return found

    log.open = staticmethod(opened)


def withdraws_before_others_announce() -> None:
    """Its copy is removed although no other node has one."""
    announcements: Any = LeasedAnnouncements
    announcements._guard = lambda self, name, vault: ()


FAULTS = named(
    kills_itself,
    forgets_its_last_rows,
    counts_its_last_rows_twice,
    withdraws_before_others_announce,
)


if __name__ == "__main__":
    run_planted(FAULTS)
