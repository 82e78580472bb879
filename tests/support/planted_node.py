"""`python -m tests.support.planted_node FAULT MODULE ...`: runs MODULE (a node) with a fault planted in its recovery.

It proves that the checks of the scenarios find the faults that they are for.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from typing import Any

import palisade.recovery.recovery
from palisade.recovery.decision import Case, Join, Snapshot, SnapshotReason
from palisade.recovery.recovery import Recovery
from palisade.segments.disk import FolderDisk
from palisade.segments.segment_store import INCOMING


def always_join() -> None:
    palisade.recovery.recovery.decide = lambda *_: Join(Case.A)


def always_snapshot() -> None:
    """At the first decision, where the table would choose another case."""
    decide = palisade.recovery.recovery.decide
    looked: list[bool] = []

    def planted(*arguments: Any) -> Any:
        looked.append(True)
        return Snapshot(SnapshotReason.COST) if len(looked) == 1 else decide(*arguments)

    palisade.recovery.recovery.decide = planted


def difference_untold() -> None:
    """The behaviour of the system on which the seed is based: a running node takes the snapshot, and its components are
    not notified."""

    async def skip(self: Recovery) -> None:
        self._vault.forget_difference()

    Recovery._notify_difference = skip  # type: ignore[method-assign]


def half_left() -> None:
    """Data that a killed start has left half written stay where they are. (A forgotten plan changes nothing here: the
    versions of segments are digests. tests/recovery/test_crashes.py shows it, of data that look complete.)"""
    remove = FolderDisk.remove

    async def unless_incoming(self: FolderDisk, file: str) -> None:
        if not file.startswith(INCOMING):
            await remove(self, file)

    FolderDisk.remove = unless_incoming  # type: ignore[method-assign]


FAULTS: dict[str, Callable[[], None]] = {
    fault.__name__: fault for fault in (always_join, always_snapshot, difference_untold, half_left)
}

if __name__ == "__main__":
    FAULTS[sys.argv[1]]()
    module = sys.argv[2]
    sys.argv = [module, *sys.argv[3:]]
    runpy.run_module(module, run_name="__main__")
