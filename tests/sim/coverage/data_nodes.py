"""The rare moments of data nodes, from their parts: what a lost lease interrupts, and what a death does."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

from palisade.catalog.errors import DamagedRow
from palisade.segments.leased_announcements import LeasedAnnouncements
from palisade.segments.local_segments import LocalSegments

COPIES = [
    "announced",
    "removed, others have it",
    "removed, not needed",
    "removed, expired",
    "purged",
    "log removed, handed off",
    "settled",
]


class Busy(enum.Enum):
    """What a data node does with a copy."""

    LOADING = "loading"
    SERVING = "serving"
    DROPPING = "dropping"


class HandOffPhase(enum.Enum):
    """Of a realtime segment on its ingester."""

    RECEIVING = "receiving"
    CLOSED = "closed"
    """And not published."""
    PUBLISHED = "published"
    """And not handed off."""


def interrupted(local: LocalSegments, own: LeasedAnnouncements) -> Iterator[Busy]:
    holder = local.holder
    if holder is None:
        return
    if any(not holder.segment_store.has(name, wanted.digest) for name, wanted in holder.wanted.items()):
        yield Busy.LOADING
    if own.announced:
        yield Busy.SERVING
    if own.removing or any(name not in holder.wanted for name in holder.segment_store.held):
        yield Busy.DROPPING


def phases(local: LocalSegments) -> Iterator[HandOffPhase]:
    """Of all segments of a node."""
    for name, held in local.realtime.held.items() if local.realtime is not None else ():
        record = _record(local.realtime, name)
        if record is None:
            continue
        if not record.is_growing:
            yield HandOffPhase.PUBLISHED
        elif record.replicas:
            yield HandOffPhase.CLOSED if held.log.closed else HandOffPhase.RECEIVING


def _record(ingester: Any, name: str) -> Any:
    try:
        return ingester.record(name)
    except (RuntimeError, DamagedRow):
        return None
