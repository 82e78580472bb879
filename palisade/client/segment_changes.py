"""Changes of segments' records through the client API: mark unused, set replicas, reset loaded (S2, seed 003).

Each change compares the revision of the record. If another change came first, the records are read again. A change of
more than `RECORDS_MAX` segments takes several transactions, so a query in between may see a part of it; repeating the
command completes one that was interrupted.
"""

from __future__ import annotations

from collections.abc import Callable

from palisade.catalog.errors import BadField
from palisade.catalog.segment import REPLICAS_MAX, Segment, SegmentRecord
from palisade.client.publishing import PublishingStore, in_slices, read_records, unchanged_record
from palisade.client.record_choice import Choice, everything
from palisade.metastore.requests import Put
from palisade.wire.segment_errors import NoSuchDataSource, PublicationOvertaken

RECORDS_MAX = 300
ATTEMPTS = 5

Change = Callable[[SegmentRecord], SegmentRecord]


async def mark_unused(store: PublishingStore, data_source: str, choice: Choice) -> list[Segment]:
    """Queries stop counting on them. Returns those that were changed. Raises as `change_records`."""
    return await change_records(
        store, data_source, choice, lambda record: record.marked_unused() if record.used else record
    )


async def set_replicas(store: PublishingStore, data_source: str, replicas: int, choice: Choice) -> list[Segment]:
    """0: the same transaction clears `loaded`, so lookups list the segments as not served. Raises as `change_records`,
    and BadField."""
    if not 0 <= replicas <= REPLICAS_MAX:
        raise BadField(f"replicas: {replicas} is not a number from 0 to {REPLICAS_MAX}")
    return await change_records(
        store, data_source, choice, lambda record: record.with_replicas(replicas) if record.used else record
    )


async def reset_loaded(store: PublishingStore, data_source: str) -> list[Segment]:
    """No query counts on segments without a server any more. The coordinator marks those again that are announced."""
    return await change_records(store, data_source, everything, SegmentRecord.not_loaded)


async def change_records(store: PublishingStore, data_source: str, choice: Choice, change: Change) -> list[Segment]:
    """Returns the segments whose visible records were changed.

    Raises NoSuchDataSource, DamagedRow, PublicationOvertaken and the store's errors.
    """
    done: list[Segment] = []
    for _ in range(ATTEMPTS):
        left = await _changes(store, data_source, choice, change)
        overtaken = False
        for start in range(0, len(left), RECORDS_MAX):
            some = left[start : start + RECORDS_MAX]
            compares = [unchanged_record(record, revision) for record, revision in some]
            puts = [Put(record.segment.key, record.to_bytes()) for record, _ in some]
            if (await store.segments_txn(compares, puts)).succeeded:
                done += [record.segment for record, _ in some]
            else:
                overtaken = True
        if not overtaken:
            return sorted(set(done))
    raise PublicationOvertaken(
        f"the records of data source {data_source} kept changing; {len(done)} segments were changed: repeat the command"
    )


async def _changes(
    store: PublishingStore, data_source: str, choice: Choice, change: Change
) -> list[tuple[SegmentRecord, int]]:
    """The changed records that are chosen and visible, with the revisions at which they were read."""
    manifest, manifest_revision, records = await read_records(store, data_source, choice)
    if not manifest_revision:
        raise NoSuchDataSource(f"no segment of data source {data_source} was ever published: check the name")
    return [
        (after, revision)
        async for record, revision in in_slices(records)
        if manifest.is_visible(record) and (after := change(record)) != record
    ]
