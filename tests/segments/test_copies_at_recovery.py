"""Copies without an assignment: which of them recovery keeps, for the running node to withdraw and remove in order."""

from __future__ import annotations

from dataclasses import replace

from palisade.catalog.segment import SegmentRecord
from palisade.metastore.requests import Put
from palisade.segments.segment_store import file_of
from tests.support.holding_node import Ground, Refusing, day, rows
from tests.support.segment_names import segment


async def recovered(ground: Ground) -> None:
    """Starts the node with a snapshot; the running node removes nothing meanwhile."""
    ground.compact()
    ground.announcements = Refusing()
    node = ground.node()
    await node.recover()
    await node.inner.stop()


async def test_copy_without_assignment_stays_at_recovery_only_if_it_is_the_one_of_its_record() -> None:
    """The running node removes it in order. A torn one would stay for good, and serve fewer rows."""
    ground = Ground()
    ground.assign(1, 2)
    for number in (1, 2):
        ground.record(number)
    async with ground.started():
        pass
    ground.unassign(1, 2)
    ground.files.content[file_of(day(2))] = rows(2)[:9]
    await recovered(ground)
    assert ground.files.content == {file_of(day(1)): rows(1)}


def growing(record: SegmentRecord) -> SegmentRecord:
    return replace(record, rows=0, size_bytes=0, digest="", ingester="n1")


async def test_copy_of_a_segment_that_was_handed_off_after_the_snapshot_stays_at_recovery() -> None:
    """In the snapshot the segment still grows. Its ingester removed the copy, which queries counted on (seed 251 of the
    simulator, scenario expiry)."""
    ground = Ground()
    ground.assign(1)
    ground.record(1, growing)
    async with ground.started():
        pass
    ground.unassign(1)
    await recovered(ground)
    assert ground.files.content == {file_of(day(1)): rows(1)}


async def test_damaged_record_stops_no_eviction_plan_and_keeps_its_copy() -> None:
    ground = Ground()
    ground.assign(1, 2)
    async with ground.started():
        pass
    ground.unassign(1, 2)
    ground.cluster.do(Put(segment(1).key, b"damaged"))
    await recovered(ground)
    assert set(ground.files.content) == {file_of(day(1))}
