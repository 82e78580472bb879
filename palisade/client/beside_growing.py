"""Keeps changes of segments' records from hiding rows that an ingester still receives (`catalog/realtime.py`).

The change is refused if a segment of the same interval and version grows. One that is opened later fails the compares:
no record of that interval and version may have changed.
"""

from __future__ import annotations

from collections.abc import Sequence

from palisade.catalog.realtime import check_beside, unsettles
from palisade.catalog.segment import RECORDS, Segment, SegmentRecord
from palisade.client.publishing import PublishingStore, in_slices
from palisade.metastore.requests import Compare, CompareResult, CompareTarget, prefix_end


def chunk_prefix(segment: Segment) -> bytes:
    """The prefix of the keys of the records of its interval and version."""
    return segment.key.rpartition(b"/")[0] + b"/"


def unchanged_chunk(prefix: bytes, revision: int) -> Compare:
    """No record of the chunk was put after this revision."""
    return Compare(prefix, CompareTarget.MOD, CompareResult.LESS, revision + 1, prefix_end(prefix))


async def beside_growing(
    store: PublishingStore, data_source: str, changes: Sequence[tuple[SegmentRecord, SegmentRecord]]
) -> list[Compare]:
    """What the transaction with these changes (before, after) has to compare. Raises NotAllowed, DamagedRow."""
    touched = {chunk_prefix(before.segment): (before, after) for before, after in changes if unsettles(before, after)}
    if not touched:
        return []
    found = await store.range(RECORDS + data_source.encode() + b"/", prefix=True)
    chunks: dict[bytes, list[SegmentRecord]] = {}
    async for kv in in_slices(found.kvs):
        prefix = kv.key.rpartition(b"/")[0] + b"/"
        if prefix in touched:
            chunks.setdefault(prefix, []).append(SegmentRecord.from_bytes(kv.key, kv.value))
    for prefix, change in touched.items():
        check_beside(*change, chunks.get(prefix, ()))
    return [unchanged_chunk(prefix, found.revision) for prefix in touched]
