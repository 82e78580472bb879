"""Replacement of intervals: a lookup sees the old rows of an interval or the new ones (issue 18)."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from palisade.catalog.errors import NotAllowed
from palisade.catalog.publication import Manifest, check
from palisade.catalog.replacement import replacement
from palisade.catalog.segment import Segment, SegmentRecord
from palisade.catalog.timeline import Interval, SegmentId, Timeline

MANIFEST = Manifest("flights", last=1)


def record(
    start: int = 0, end: int = 4, version: int = 0, partition: int = 0, core: int = 1, *, rows: str = "0", url: str = ""
) -> SegmentRecord:
    segment = Segment("flights", SegmentId(Interval(start, end), version, partition))
    return SegmentRecord(segment, core, 10, 100, "rows:" + rows * 64, replicas=1, url=url)


def chosen(present: list[SegmentRecord], *wanted: SegmentRecord) -> list[tuple[int, int, int, int]]:
    """Start, end, version and partition of what is published."""
    known = {each.segment: each for each in present}
    found = replacement(MANIFEST, known, wanted)
    if found:
        check(MANIFEST, known, found)
    return [(*each.segment.id.interval, each.segment.id.version, each.segment.id.partition) for each in found]


def test_new_intervals_are_published_in_version_1() -> None:
    assert chosen([], record(4, 8), record(0, 4)) == [(0, 4, 1, 0), (4, 8, 1, 0)]


def test_same_rows_at_the_same_place_are_left_out() -> None:
    assert chosen([record(version=3)], record()) == []
    assert chosen([record(version=3)], record(rows="1")) == [(0, 4, 4, 0)]
    assert chosen([record(version=3)], record(url="file:///x")) == [(0, 4, 4, 0)]
    assert chosen([record(version=3).marked_unused()], record()) == [(0, 4, 4, 0)]
    assert chosen([replace(record(version=3), generation=9)], record()) == [(0, 4, 4, 0)]


def test_one_changed_partition_replaces_the_whole_interval() -> None:
    """With a version for each partition, an interval would show rows of two versions, or never be complete."""
    old = [record(version=2, partition=number, core=2) for number in (0, 1)]
    assert chosen(old, record(core=2), record(partition=1, core=2)) == []
    assert chosen(old, record(core=2), record(partition=1, core=2, rows="1")) == [(0, 4, 3, 0), (0, 4, 3, 1)]
    assert chosen(old, record()) == [(0, 4, 3, 0)]
    assert chosen([record(version=2)], *[record(partition=number, core=2) for number in (0, 1)]) == [
        (0, 4, 3, 0),
        (0, 4, 3, 1),
    ]
    appended = [record(version=2), record(version=2, partition=1)]
    assert chosen(appended, record()) == [(0, 4, 3, 0)]


def test_shorter_segments_within_the_interval_are_covered() -> None:
    assert chosen([record(0, 2, version=7), record(2, 4, version=2)], record()) == [(0, 4, 8, 0)]
    assert chosen([record(version=1), record(0, 2, version=7)], record()) == [(0, 4, 8, 0)]


@pytest.mark.parametrize("old", [(0, 8), (-4, 4), (2, 6), (-8, 16)])
def test_segment_that_reaches_beyond_the_interval_is_refused(old: tuple[int, int]) -> None:
    with pytest.raises(NotAllowed, match="reaches beyond"):
        chosen([record(*old, version=1)], record())
    assert chosen([record(*old, version=1).marked_unused()], record()) == [(0, 4, 2, 0)]


@pytest.mark.parametrize("seed", range(60))
def test_repeated_replacements_always_show_the_last_rows_and_then_publish_nothing(seed: int) -> None:
    """Partitions, versions and unused segments in any order: the timeline shows what was written last, in whole."""
    random = Random(seed)
    known: dict[Segment, SegmentRecord] = {}
    last: dict[Interval, set[str]] = {}
    for _ in range(8):
        start, core = random.choice((0, 4)), random.randint(1, 3)
        wanted = [
            record(start, start + 4, partition=number, core=core, rows=random.choice("012")) for number in range(core)
        ]
        for each in replacement(MANIFEST, known, wanted):
            known[each.segment] = replace(each, loaded=True)
        last[Interval(start, start + 4)] = {each.digest for each in wanted}
        assert replacement(MANIFEST, known, wanted) == []
        timeline = Timeline(each.for_timeline() for each in known.values() if each.used)
        for interval, digests in last.items():
            (shown,) = timeline.lookup(interval)
            rows = {known[Segment("flights", each.id)].digest for each in shown.chunk.segments}
            assert rows == digests
        if random.random() < 0.3:
            gone = random.choice((0, 4))
            for segment in [each for each in known if each.id.interval.start_ms == gone]:
                known[segment] = known[segment].marked_unused()
            last.pop(Interval(gone, gone + 4), None)
