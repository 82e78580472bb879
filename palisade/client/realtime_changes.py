"""Gives up a realtime segment whose ingester is lost, and reads the audit records of those that were (seed 003). Finds
out whether a realtime segment can be closed.

The transaction that gives one up compares that the ingester does not announce the segment. An ingester acknowledges
rows only while it announces it, by its own clock, so no row is acknowledged after the segment was given up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from palisade.catalog.errors import NotAllowed
from palisade.catalog.realtime import GIVEN_UP, GiveUp, given_up
from palisade.catalog.segment import Segment, SegmentRecord
from palisade.client.publishing import PublishingStore, unchanged_record
from palisade.metastore.requests import Compare, CompareResult, CompareTarget, Put
from palisade.wire.segment_errors import PublicationOvertaken, UnknownSegment

ATTEMPTS = 5


class Closed(NamedTuple):
    """A closed segment. `before`: it was published when the call began."""

    rows: int
    before: bool


def before_close(found: Mapping[str, Any]) -> str | Closed:
    """`found`: shape `SegmentState`. The node that receives the rows of the segment; or Closed if it is published.
    Raises NotAllowed."""
    segment, node = found["segment"], str(found.get("ingester", ""))
    if not node:
        raise NotAllowed(f"segment {segment} was published as a file: it has no ingester")
    if found["digest"]:
        return Closed(found["rows"], before=True)
    if not found["replicas"]:
        raise NotAllowed(f"segment {segment} was given up, so there is nothing to publish")
    return node


async def give_up(store: PublishingStore, segment: Segment, by: str, reason: str, at_ms: int) -> GiveUp:
    """Lookups list it as not served from now on. `at_ms`: wall time, for the audit record.

    Raises UnknownSegment, NotAllowed: it does not grow, or its ingester serves it; BadField, PublicationOvertaken.
    """
    for _ in range(ATTEMPTS):
        stored = (await store.range(segment.key)).kvs
        if not stored:
            text = f"there is no segment {segment}: palisade segments realtime list shows those that grow"
            raise UnknownSegment(text)
        record = SegmentRecord.from_bytes(segment.key, stored[0].value)
        after, audit = given_up(record, by, reason, at_ms)
        announcement = segment.announcement_key(record.ingester)
        if (await store.range(announcement)).kvs:
            raise NotAllowed(
                f"segment {segment}: node {record.ingester} serves it, so nothing is lost: close it (palisade segments "
                "realtime close)"
            )
        compares = [
            unchanged_record(record, stored[0].mod_revision),
            Compare(announcement, CompareTarget.CREATE, CompareResult.EQUAL, 0),
        ]
        puts = [Put(segment.key, after.to_bytes()), Put(audit.key, audit.to_bytes())]
        if (await store.segments_txn(compares, puts)).succeeded:
            return audit
    raise PublicationOvertaken(f"the record of segment {segment} kept changing: nothing was given up; repeat")


async def given_up_records(store: PublishingStore) -> list[GiveUp]:
    """The audit records, by segment and time. Raises DamagedRow."""
    found = await store.range(GIVEN_UP, prefix=True)
    return [GiveUp.from_bytes(kv.key, kv.value) for kv in found.kvs]


def given_up_shape(audit: GiveUp) -> dict[str, Any]:
    """Shape `SegmentGivenUp` of the API."""
    shape = {"segment": str(audit.segment), "ingester": audit.ingester, "by": audit.by, "reason": audit.reason}
    return {**shape, "at_ms": audit.at_ms}
