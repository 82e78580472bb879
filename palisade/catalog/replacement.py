"""Replaces what a data source has in some intervals, whatever versions and partitions are published there. Pure.

Each interval of the new segments is replaced as a whole: all its partitions get one version above every version in the
interval, so a lookup returns the old rows of the interval or the new ones. An interval whose segments are the same
already is omitted, so a repetition publishes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from palisade.catalog.errors import NotAllowed
from palisade.catalog.publication import Manifest
from palisade.catalog.segment import Segment, SegmentRecord
from palisade.catalog.timeline import Interval

Same = Callable[[SegmentRecord, SegmentRecord], bool]
"""Whether a published segment need not be replaced by a new one."""


def same_rows_and_place(old: SegmentRecord, new: SegmentRecord) -> bool:
    return old.digest == new.digest and old.url == new.url


def replacement(
    manifest: Manifest,
    present: Mapping[Segment, SegmentRecord],
    wanted: Iterable[SegmentRecord],
    same: Same = same_rows_and_place,
) -> list[SegmentRecord]:
    """The records to publish, with their versions. `present`: at least those that overlap `wanted`.

    Raises NotAllowed: a visible segment reaches beyond the interval that would replace a part of it. The rest of its
    rows would stay, and intervals without new rows would show its old ones.
    """
    chunks: dict[Interval, list[SegmentRecord]] = {}
    for record in wanted:
        chunks.setdefault(record.segment.id.interval, []).append(record)
    found: list[SegmentRecord] = []
    for interval, new in sorted(chunks.items()):
        overlapping = [old for old in present.values() if old.segment.id.interval.overlaps(interval)]
        shown = [old for old in overlapping if old.used and manifest.is_visible(old)]
        _check_within(interval, shown)
        if not _is_published(shown, new, same):
            version = 1 + max((old.segment.id.version for old in overlapping), default=0)
            found += [replace(each, segment=_with_version(each.segment, version)) for each in new]
    return found


def _check_within(interval: Interval, shown: Iterable[SegmentRecord]) -> None:
    for old in shown:
        start_ms, end_ms = old.segment.id.interval
        if start_ms < interval.start_ms or end_ms > interval.end_ms:
            raise NotAllowed(
                f"segment {old.segment} reaches beyond an interval that would replace a part of it: publish whole "
                "intervals of the same length, or mark it unused first (palisade segments mark-unused)"
            )


def _is_published(shown: Sequence[SegmentRecord], new: Sequence[SegmentRecord], same: Same) -> bool:
    """Whether the highest version in the interval has exactly the new partitions."""
    last = max((old.segment.id.version for old in shown), default=0)
    chunk = {old.segment.id.partition: old for old in shown if old.segment.id.version == last}
    if len(chunk) != len(new):
        return False
    return all(
        (old := chunk.get(each.segment.id.partition)) is not None
        and old.segment.id.interval == each.segment.id.interval
        and old.core_partitions == each.core_partitions
        and same(old, each)
        for each in new
    )


def _with_version(segment: Segment, version: int) -> Segment:
    return segment._replace(id=segment.id._replace(version=version))
