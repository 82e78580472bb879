"""Publishes segments through the client API: all of them become visible at one revision (`catalog/publication.py`).

Every transaction compares the manifest, so of two concurrent publications of a data source one is refused and plans
again. A publication that ends in the middle leaves an invisible generation.

Members publish on behalf of callers too, so only records that overlap what is published are decoded and compared, and
long loops give other tasks a turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

from palisade.catalog.publication import Manifest, PublicationPlan, plan
from palisade.catalog.replacement import Same, replacement, same_rows_and_place
from palisade.catalog.segment import RECORDS, Segment, SegmentRecord
from palisade.catalog.timeline import Interval, SegmentId
from palisade.client.record_choice import Choice, everything, overlapping
from palisade.metastore.requests import Compare, CompareResult, CompareTarget, Put
from palisade.metastore.results import RangeResult, TxnResult
from palisade.wire.segment_errors import PublicationOvertaken

T = TypeVar("T")

ATTEMPTS = 5
SLICE = 500
"""Rows that are read before other tasks get a turn: at most about ten milliseconds."""

Choose = Callable[[Manifest, Mapping[Segment, SegmentRecord], Sequence[SegmentRecord]], Sequence[SegmentRecord]]
"""Which of the wanted records to publish, with their versions."""


class PublishingStore(Protocol):
    """The methods of `client.Client` that a publication uses."""

    async def range(self, key: bytes, *, prefix: bool = False, revision: int = 0) -> RangeResult: ...
    async def segments_txn(self, compare: Iterable[Compare] = (), success: Iterable[Any] = ()) -> TxnResult: ...


async def publish(store: PublishingStore, data_source: str, wanted: Sequence[SegmentRecord]) -> int:
    """Publish the segments whose rows are not published yet; changed ones get a higher version. Returns their number.

    Raises BadField, NotAllowed, DamagedRow, PublicationOvertaken and the store's errors.
    """
    return len(await _publish(store, data_source, wanted, changed, ()))


async def replace_intervals(
    store: PublishingStore,
    data_source: str,
    wanted: Sequence[SegmentRecord],
    *,
    condition: Sequence[Compare] = (),
    same: Same = same_rows_and_place,
) -> list[SegmentRecord]:
    """Publish what `catalog/replacement.py` chooses, and return it. `condition`: holds in each of the transactions, or
    nothing becomes visible; for example that a lock is held. Raises as `publish`."""
    return await _publish(store, data_source, wanted, partial(replacement, same=same), condition)


async def _publish(
    store: PublishingStore,
    data_source: str,
    wanted: Sequence[SegmentRecord],
    choose: Choose,
    condition: Sequence[Compare],
) -> list[SegmentRecord]:
    choice = overlapping(record.segment.id.interval for record in wanted)
    for _ in range(ATTEMPTS):
        manifest, manifest_revision, present = await read_data_source(store, data_source, choice)
        records = choose(manifest, present, wanted)
        planned = plan(manifest, present, records) if records else None
        if planned is None or await _write(store, manifest, manifest_revision, planned, condition):
            return list(records)
    raise PublicationOvertaken(
        f"publications of data source {data_source} by others kept interfering: nothing was published; repeat"
    )


async def read_data_source(
    store: PublishingStore, data_source: str, choice: Choice = everything
) -> tuple[Manifest, int, dict[Segment, SegmentRecord]]:
    """The manifest, its revision, and the chosen records, as of one revision. Raises DamagedRow."""
    manifest, revision, records = await read_records(store, data_source, choice)
    return manifest, revision, {record.segment: record for record, _ in records}


async def read_records(
    store: PublishingStore, data_source: str, choice: Choice
) -> tuple[Manifest, int, list[tuple[SegmentRecord, int]]]:
    """As `read_data_source`, each record with its revision. The manifest's revision is 0 if there is none."""
    found = await store.range(RECORDS + data_source.encode() + b"/", prefix=True)
    manifest = Manifest(data_source)
    stored = await store.range(manifest.key, revision=found.revision)
    records = [
        (SegmentRecord.from_bytes(kv.key, kv.value), kv.mod_revision)
        async for kv in in_slices(found.kvs)
        if choice(kv.key)
    ]
    if not stored.kvs:
        return manifest, 0, records
    return Manifest.from_bytes(manifest.key, stored.kvs[0].value), stored.kvs[0].mod_revision, records


async def in_slices(items: Sequence[T]) -> AsyncIterator[T]:
    """Gives other tasks a turn after every `SLICE` items."""
    for number, item in enumerate(items):
        if number and not number % SLICE:
            await asyncio.sleep(0)
        yield item


def changed(
    manifest: Manifest, present: Mapping[Segment, SegmentRecord], wanted: Iterable[SegmentRecord]
) -> list[SegmentRecord]:
    """Those of `wanted` whose rows the latest segment of their place does not have, with the next version. Pure."""
    latest: dict[tuple[Interval, int], SegmentRecord] = {}
    for segment in sorted(present, key=lambda each: each.id.version):
        latest[segment.id.interval, segment.id.partition] = present[segment]
    found = []
    for record in wanted:
        interval, version, partition = record.segment.id
        last = latest.get((interval, partition))
        if last is None:
            found.append(record)
        elif last.digest != record.digest or not last.used or not manifest.is_visible(last):
            version = max(version, last.segment.id.version + 1)
            found.append(replace(record, segment=record.segment._replace(id=SegmentId(interval, version, partition))))
    return found


async def _write(
    store: PublishingStore, manifest: Manifest, revision: int, planned: PublicationPlan, condition: Sequence[Compare]
) -> bool:
    """False if another publication of the data source was first, or the condition does not hold."""
    steps = [[Put(*each) for each in part] for part in planned.parts]
    if planned.opening is not None:
        steps.insert(0, [Put(manifest.key, planned.opening.to_bytes())])
    steps[-1].append(Put(manifest.key, planned.closing.to_bytes()))
    for step in steps:
        done = await store.segments_txn([unchanged(manifest, revision), *condition], step)
        if not done.succeeded:
            return False
        if step[-1].key == manifest.key:
            revision = done.revision
    return True


def unchanged(manifest: Manifest, revision: int) -> Compare:
    return Compare(manifest.key, CompareTarget.MOD, CompareResult.EQUAL, revision)


def unchanged_record(record: SegmentRecord, revision: int) -> Compare:
    return Compare(record.segment.key, CompareTarget.MOD, CompareResult.EQUAL, revision)
