"""Realtime segments: where they are opened, and the transitions of their records (seed 003, issue 17)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from palisade.catalog.errors import BadField, CatalogError, DamagedRow, NotAllowed
from palisade.catalog.publication import Manifest, check
from palisade.catalog.realtime import GiveUp, check_beside, given_up, opening, published
from palisade.catalog.replacement import replacement
from palisade.catalog.segment import Segment, SegmentRecord
from palisade.catalog.segment_writes import check_row
from palisade.catalog.timeline import Interval, SegmentId, ServingState
from palisade.metastore.requests import Put

DAY = Interval(0, 4)
MANIFEST = Manifest("sales", last=2, pending=(2,))
DIGEST = "rows-sha256:" + "0" * 64


def record(
    start: int = 0, end: int = 4, version: int = 1, partition: int = 0, core: int = 1, *, loaded: bool = True
) -> SegmentRecord:
    segment = Segment("sales", SegmentId(Interval(start, end), version, partition))
    return SegmentRecord(segment, core, 10, 100, DIGEST, 1, loaded=loaded)


def opened(*present: SegmentRecord, interval: Interval = DAY) -> SegmentRecord:
    return opening(MANIFEST, {each.segment: each for each in present}, interval, "n4", 2)[1]


def place(found: SegmentRecord) -> tuple[int, int, int]:
    return found.segment.id.version, found.segment.id.partition, found.core_partitions


def test_first_segment_of_an_interval_is_its_core_partition() -> None:
    manifest, found = opening(MANIFEST, {}, DAY, "n4", 2)
    assert place(found) == (1, 0, 1)
    assert (manifest.last, found.generation, manifest.is_visible(found)) == (3, 3, True)
    assert found.is_growing
    assert found.state() is ServingState.QUERYABLE


def test_rows_are_added_to_the_newest_version_of_the_interval() -> None:
    newest = [record(version=3, partition=0, core=2), record(version=3, partition=1, core=2)]
    assert place(opened(record(version=1), *newest)) == (3, 2, 2)
    assert place(opened(record(4, 8, version=9))) == (1, 0, 1)


def test_name_of_an_unused_partition_is_not_taken_again() -> None:
    assert place(opened(record(), record(partition=1).marked_unused())) == (1, 2, 1)
    assert place(opened(record(version=4).marked_unused())) == (5, 0, 1)


def test_second_ingester_opens_the_next_partition() -> None:
    manifest, first = opening(MANIFEST, {}, DAY, "n4", 1)
    assert place(opening(manifest, {first.segment: first}, DAY, "n5", 1)[1]) == (1, 1, 1)


def test_core_partition_is_kept_in_lookups_while_rows_are_added_beside_it() -> None:
    core, growing = record(), opened(record())
    for after in (core.marked_unused(), core.not_loaded()):
        with pytest.raises(NotAllowed, match="whose rows node n4 still receives"):
            check_beside(core, after, [core, growing])
        check_beside(core, after, [core, published(growing, 5, 50, DIGEST)])
        check_beside(core, after, [core])
    check_beside(core, core.with_replicas(0), [core, growing])
    with pytest.raises(NotAllowed):
        check_beside(core.with_replicas(0), core.with_replicas(0).with_replicas(1), [growing])
    check_beside(record(partition=1), record(partition=1).marked_unused(), [core, growing])


@pytest.mark.parametrize(
    ("present", "text"),
    [
        ([record(0, 8)], "give the same interval"),
        ([record(2, 6)], "give the same interval"),
        ([record(), record(2, 4, version=2)], "give the same interval"),
        ([record(loaded=False)], "not loaded yet"),
        ([record(), record(version=2, loaded=False)], "not loaded yet"),
        ([record(core=2)], "not loaded yet"),
        ([replace(record(), generation=2)], "not loaded yet"),
    ],
)
def test_opening_is_refused_where_rows_would_be_hidden_or_hide_others(present: list[SegmentRecord], text: str) -> None:
    with pytest.raises(NotAllowed, match=text):
        opened(*present)


def test_segment_that_no_node_would_keep_is_refused() -> None:
    with pytest.raises(BadField, match="at least 1"):
        opening(MANIFEST, {}, DAY, "n4", 0)


def test_newer_version_is_refused_while_a_segment_grows_and_allowed_after_its_hand_off() -> None:
    growing = opened()
    newer = record(version=2)
    with pytest.raises(NotAllowed, match="n4 still receives rows"):
        check(MANIFEST, {growing.segment: growing}, [newer])
    with pytest.raises(NotAllowed, match="n4 still receives rows"):
        check(MANIFEST, {growing.segment: growing}, replacement(MANIFEST, {growing.segment: growing}, [record()]))
    check(MANIFEST, {growing.segment: growing}, [record(partition=1)])
    check(MANIFEST, {growing.segment: published(growing, 5, 50, DIGEST)}, [newer])
    check(MANIFEST, {growing.segment: given_up(growing, "ann", "lost", 7)[0]}, [newer])


def test_publication_keeps_name_version_and_promise() -> None:
    growing = opened()
    found = published(growing, 5, 50, DIGEST)
    assert (found.segment, found.loaded, found.rows, found.is_growing) == (growing.segment, True, 5, False)
    for each in (found, growing.marked_unused(), growing.with_replicas(0)):
        with pytest.raises(NotAllowed, match="does not grow"):
            published(each, 5, 50, DIGEST)


def test_segment_that_is_given_up_is_listed_as_not_served_and_audited() -> None:
    growing = opened()
    found, audit = given_up(growing, "ann", "the disk of n4 is lost", 7)
    assert found.state() is ServingState.UNSERVED
    assert GiveUp.from_bytes(audit.key, audit.to_bytes()) == audit
    check_row(Put(audit.key, audit.to_bytes()))
    with pytest.raises(NotAllowed, match="given up"):
        given_up(found, "ann", "again", 8)
    with pytest.raises(BadField, match="reason"):
        given_up(growing, "ann", "", 7)


def test_record_survives_its_encoding_in_each_state() -> None:
    growing = opened()
    for each in (growing, published(growing, 5, 50, DIGEST), given_up(growing, "ann", "lost", 7)[0]):
        assert SegmentRecord.from_bytes(each.segment.key, each.to_bytes()) == each
    assert b"ingester" not in record().to_bytes()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"ingester": "no name"}, "not the name of a node"),
        ({"rows": 5}, "has rows and no digest"),
        ({"ingester": ""}, "digest"),
    ],
)
def test_impossible_records_are_refused(changes: dict[str, str], text: str) -> None:
    with pytest.raises(CatalogError, match=text):
        replace(opened(), **changes)  # type: ignore[arg-type]


def test_damaged_record_names_its_field() -> None:
    found = opened()
    with pytest.raises(DamagedRow, match="ingester"):
        SegmentRecord.from_bytes(found.segment.key, found.to_bytes().replace(b'"n4"', b"4"))
