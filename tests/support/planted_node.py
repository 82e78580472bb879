"""`python -m tests.support.planted_node FAULT MODULE ...`: runs MODULE (a node) with a fault planted in its recovery.

It proves that the checks of the scenarios find the faults that they are for. MODULE may also run a copy of a journal.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import palisade.journal.role
import palisade.recovery.recovery
from palisade.catalog.activation import ActivationRecord, ClaimNext, Decision, Follow, LocalSequence, ReplicaEvent
from palisade.catalog.timeline import Interval
from palisade.journal.active import Active
from palisade.recovery.decision import Case, Join, Snapshot, SnapshotReason
from palisade.recovery.recovery import Recovery
from palisade.segments.broker_view import BrokerView, OnMissing, SegmentAnswer
from palisade.segments.disk import FolderDisk
from palisade.segments.segment_store import INCOMING
from tests.support.planting import named, run_planted


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


def missing_in_silence() -> None:
    """What seed 003 is about: a broker leaves out segments without a server."""
    lookup = BrokerView.lookup

    def partial(self: BrokerView, data_source: str, interval: Interval, on_missing: OnMissing) -> SegmentAnswer:
        return replace(lookup(self, data_source, interval, OnMissing.ALLOW), missing=())

    BrokerView.lookup = partial  # type: ignore[method-assign, assignment]


def older_serves() -> None:
    """What seed 004 is about: the lock alone decides which copy becomes active."""
    decide = palisade.journal.role.decide

    def planted(record: ActivationRecord | None, local: LocalSequence | None, **known: Any) -> Decision:
        found = decide(record, local, **known)
        return ClaimNext() if isinstance(found, Follow) and local is not None else found

    palisade.journal.role.decide = planted  # type: ignore[assignment]


def sequence_stays() -> None:
    """A copy that has lost its replica serves on under the sequence that the replica has as well."""

    async def unchanged(self: Active) -> None:
        self.progress.happens(ReplicaEvent.SEQUENCE_RAISED)
        self.advance()

    Active._raise = unchanged  # type: ignore[method-assign]


FAULTS = named(
    always_join,
    always_snapshot,
    difference_untold,
    half_left,
    missing_in_silence,
    older_serves,
    sequence_stays,
)


if __name__ == "__main__":
    run_planted(FAULTS)
