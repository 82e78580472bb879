"""Changes of segments' records through the client API: mark unused, set replicas, reset loaded (S2, seed 003).

Each change compares the revision of the record. If another change came first, the records are read again. A change of
more than `RECORDS_MAX` segments takes several transactions, so a query in between may see a part of it; repeating the
command completes one that was interrupted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from palisade.base.counted import agreeing, counted
from palisade.catalog.errors import BadField, NotAllowed
from palisade.catalog.segment import REPLICAS_MAX, Segment, SegmentRecord
from palisade.client.beside_growing import beside_growing
from palisade.client.publishing import PublishingStore, in_slices, read_records, unchanged_record
from palisade.client.record_choice import Choice, everything
from palisade.metastore.requests import Put
from palisade.wire.segment_errors import NoSuchDataSource, PublicationOvertaken

RECORDS_MAX = 300
ATTEMPTS = 5

Change = Callable[[SegmentRecord], SegmentRecord]


async def mark_unused(store: PublishingStore, data_source: str, choice: Choice) -> list[Segment]:
    """Queries stop counting on them. Returns those that were changed. Raises as `change_records`, and NotAllowed."""
    return await change_records(
        store, data_source, choice, lambda record: closed(record).marked_unused() if record.used else record
    )


async def set_replicas(store: PublishingStore, data_source: str, replicas: int, choice: Choice) -> list[Segment]:
    """0: the same transaction clears `loaded`, so lookups list the segments as not served. Raises as `change_records`,
    BadField and NotAllowed."""
    if not 0 <= replicas <= REPLICAS_MAX:
        raise BadField(f"replicas: {replicas} is not a number from 0 to {REPLICAS_MAX}")

    def change(record: SegmentRecord) -> SegmentRecord:
        kept = record if replicas else closed(record)
        return kept.with_replicas(replicas) if record.used else record

    return await change_records(store, data_source, choice, change)


async def reset_loaded(store: PublishingStore, data_source: str) -> list[Segment]:
    """No query counts on segments without a server any more. The coordinator marks those again that are announced.
    Growing segments stay: they are given up one by one (`client/realtime_changes.py`)."""
    return await change_records(
        store, data_source, everything, lambda record: record if record.is_growing else record.not_loaded()
    )


def closed(record: SegmentRecord) -> SegmentRecord:
    """The record itself. Raises NotAllowed: its ingester may be acknowledging rows at this moment."""
    if record.is_growing and record.used and record.replicas:
        raise NotAllowed(
            f"segment {record.segment}: node {record.ingester} still receives its rows: close it (palisade segments "
            "realtime close), or give it up if the node is lost (palisade segments realtime give-up)"
        )
    return record


async def change_records(store: PublishingStore, data_source: str, choice: Choice, change: Change) -> list[Segment]:
    """Returns the segments whose visible records were changed.

    Raises NoSuchDataSource, NotAllowed, DamagedRow, PublicationOvertaken and the store's errors.
    """
    done: list[Segment] = []
    for _ in range(ATTEMPTS):
        left = await _changes(store, data_source, choice, change)
        overtaken = False
        for start in range(0, len(left), RECORDS_MAX):
            some = left[start : start + RECORDS_MAX]
            compares = [unchanged_record(each.after, each.revision) for each in some]
            compares += await beside_growing(store, data_source, [(each.before, each.after) for each in some])
            puts = [Put(each.after.segment.key, each.after.to_bytes()) for each in some]
            if (await store.segments_txn(compares, puts)).succeeded:
                done += [each.after.segment for each in some]
            else:
                overtaken = True
        if not overtaken:
            return sorted(set(done))
    raise PublicationOvertaken(
        f"the records of data source {data_source} kept changing; {counted(len(done), 'segment')} "
        f"{agreeing(len(done), 'was', 'were')} updated: repeat the command"
    )


class Changed(NamedTuple):
    """`revision`: of the record before."""

    before: SegmentRecord
    after: SegmentRecord
    revision: int


async def _changes(store: PublishingStore, data_source: str, choice: Choice, change: Change) -> list[Changed]:
    """The changes of the records that are chosen and visible."""
    manifest, manifest_revision, records = await read_records(store, data_source, choice)
    if not manifest_revision:
        raise NoSuchDataSource(f"no segment of data source {data_source} was ever published: check the name")
    return [
        Changed(record, after, revision)
        async for record, revision in in_slices(records)
        if manifest.is_visible(record) and (after := change(record)) != record
    ]
