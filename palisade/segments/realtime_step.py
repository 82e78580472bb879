"""The next step of an ingester for a realtime segment: a table over its record and its files. Pure (seed 003).

The log is removed last: once every other node that the segment is assigned to announces it, or once the ingester itself
has a synced copy that is assigned to it. Until then, the copy can be made again from the log after any crash.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from palisade.catalog.realtime import grows
from palisade.catalog.segment import SegmentRecord


class RealtimeStep(enum.Enum):
    WAIT = "wait"
    PUBLISH = "publish"
    """Store a copy, and set rows and digest in the record."""
    STORE = "store"
    """Store the copy that the record names, because a crash has lost it."""
    DROP = "drop"
    """Remove the log: the copies have all rows, or the segment was marked unused."""
    FORGET = "forget"
    """Remove the log of a segment that was never opened: it has no rows."""


class RealtimeState(enum.StrEnum):
    """The state that is shown to users, in the order of a segment's life."""

    OPENING = "opening"
    REALTIME = "realtime"
    PUBLISHING = "publishing"
    """Closed, and not published yet."""
    HANDING_OFF = "handing-off"
    """Published; its copies move to the nodes that it is assigned to."""
    GIVEN_UP = "given-up"


@dataclass(frozen=True, slots=True)
class Situation:
    """`record`: as of the vault. `rows`, `closed`: of the log. `stored`: the node has the copy of the record.
    `assigned`: here. `handed_off`: other nodes are assigned, and each of them announces it. `expired`: past its TTL."""

    record: SegmentRecord | None
    rows: int
    closed: bool
    stored: bool = False
    assigned: bool = False
    handed_off: bool = False
    expired: bool = False


def next_step(now: Situation) -> RealtimeStep:
    record = now.record
    if record is None:
        return RealtimeStep.WAIT if now.rows else RealtimeStep.FORGET
    if not record.used:
        return RealtimeStep.DROP
    if grows(record):
        return RealtimeStep.PUBLISH if now.closed else RealtimeStep.WAIT
    if record.is_growing or not record.replicas:
        return RealtimeStep.WAIT
    if now.handed_off or (now.stored and now.assigned):
        return RealtimeStep.DROP
    return RealtimeStep.WAIT if now.stored or now.expired else RealtimeStep.STORE


def state_of(now: Situation) -> RealtimeState:
    record = now.record
    if record is None:
        return RealtimeState.OPENING
    if not record.is_growing:
        return RealtimeState.HANDING_OFF
    if not grows(record):
        return RealtimeState.GIVEN_UP
    return RealtimeState.PUBLISHING if now.closed else RealtimeState.REALTIME
