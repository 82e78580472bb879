"""A realtime segment is given up only while its ingester cannot serve it (seed 003, issue 17)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from palisade.catalog.errors import NotAllowed
from palisade.catalog.publication import Manifest
from palisade.catalog.realtime import opening, published
from palisade.catalog.segment import SegmentRecord
from palisade.catalog.timeline import Interval
from palisade.client.realtime_changes import give_up, given_up_records
from palisade.client.record_choice import everything, named
from palisade.client.segment_changes import mark_unused, reset_loaded, set_replicas
from palisade.metastore.requests import Compare, DeleteRange, Put, Range, Txn, prefix_end
from palisade.metastore.results import RangeResult, TxnResult
from palisade.wire.segment_errors import UnknownSegment
from tests.support.meta_driver import Driver

DAY = Interval(0, 4)


class OneStore:
    """A `PublishingStore` without a network."""

    def __init__(self) -> None:
        self.driver = Driver()

    async def range(self, key: bytes, *, prefix: bool = False, revision: int = 0) -> RangeResult:
        return self.driver.store.range(Range(key, prefix_end(key) if prefix else b"", revision=revision))

    async def segments_txn(self, compare: Iterable[Compare] = (), success: Iterable[Any] = ()) -> TxnResult:
        result: TxnResult = self.driver.do(Txn(tuple(compare), tuple(success)))
        return result


@pytest.fixture
async def store() -> OneStore:
    return OneStore()


async def opened(store: OneStore, present: Iterable[SegmentRecord] = ()) -> SegmentRecord:
    known = {each.segment: each for each in present}
    manifest, record = opening(Manifest("sales", last=len(known)), known, DAY, "n4", 1)
    announced = Put(record.segment.announcement_key("n4"))
    await store.segments_txn((), [Put(record.segment.key, record.to_bytes()), Put(manifest.key, manifest.to_bytes())])
    await store.segments_txn((), [announced])
    return record


async def stored(store: OneStore, record: SegmentRecord) -> SegmentRecord:
    key = record.segment.key
    return SegmentRecord.from_bytes(key, (await store.range(key)).kvs[0].value)


async def test_segment_that_its_ingester_serves_is_not_given_up(store: OneStore) -> None:
    record = await opened(store)
    with pytest.raises(NotAllowed, match="nothing is lost: close it"):
        await give_up(store, record.segment, "ann", "lost", 7)
    assert (await stored(store, record)).replicas == 1


async def test_announcement_that_returns_meanwhile_keeps_the_segment(store: OneStore) -> None:
    record = await opened(store)
    key = record.segment.announcement_key("n4")
    await store.segments_txn((), [DeleteRange(key)])
    txn = store.segments_txn

    async def returning(compare: Iterable[Compare] = (), success: Iterable[Any] = ()) -> TxnResult:
        await txn((), [Put(key)])
        return await txn(compare, success)

    store.segments_txn = returning  # type: ignore[method-assign]
    with pytest.raises(NotAllowed, match="nothing is lost"):
        await give_up(store, record.segment, "ann", "lost", 7)
    assert (await stored(store, record)).replicas == 1


async def test_segment_is_given_up_once_with_its_audit_record(store: OneStore) -> None:
    record = await opened(store)
    await store.segments_txn((), [DeleteRange(record.segment.announcement_key("n4"))])
    audit = await give_up(store, record.segment, "ann", "the disk of n4 is lost", 7)
    assert (await stored(store, record)).replicas == 0
    assert await given_up_records(store) == [audit]
    with pytest.raises(NotAllowed, match="given up"):
        await give_up(store, record.segment, "ann", "again", 8)
    assert await mark_unused(store, "sales", named([record.segment])) == [record.segment]


async def test_published_segment_has_nothing_to_give_up(store: OneStore) -> None:
    """The advice was to open another segment."""
    record = await opened(store)
    done = published(record, 1, 1, "sha256:" + "0" * 64)
    await store.segments_txn((), [Put(record.segment.key, done.to_bytes())])
    with pytest.raises(NotAllowed, match="is published, so it does not grow: nothing can be given up"):
        await give_up(store, record.segment, "ann", "lost", 7)


async def test_segment_that_does_not_exist_is_not_given_up(store: OneStore) -> None:
    record = opening(Manifest("sales"), {}, DAY, "n4", 1)[1]
    with pytest.raises(UnknownSegment):
        await give_up(store, record.segment, "ann", "lost", 7)


async def test_growing_segment_is_not_marked_unused_unserved_or_not_loaded(store: OneStore) -> None:
    record = await opened(store)
    with pytest.raises(NotAllowed, match="still receives its rows"):
        await mark_unused(store, "sales", everything)
    with pytest.raises(NotAllowed, match="still receives its rows"):
        await set_replicas(store, "sales", 0, everything)
    assert await set_replicas(store, "sales", 2, everything) == [record.segment]
    assert await reset_loaded(store, "sales") == []
    assert (await stored(store, record)).loaded


async def test_core_partition_is_not_marked_unused_beside_a_growing_one(store: OneStore) -> None:
    first = await opened(store)
    second = await opened(store, [first])
    await store.segments_txn((), [DeleteRange(first.segment.announcement_key("n4"))])
    await give_up(store, first.segment, "ann", "lost", 7)
    with pytest.raises(NotAllowed, match=str(second.segment)):
        await mark_unused(store, "sales", named([first.segment]))


async def test_segment_that_is_opened_meanwhile_stops_the_change_of_its_core_partition(store: OneStore) -> None:
    first = await opened(store)
    await store.segments_txn((), [DeleteRange(first.segment.announcement_key("n4"))])
    await give_up(store, first.segment, "ann", "lost", 7)
    txn, done = store.segments_txn, list[SegmentRecord]()

    async def opening_first(compare: Iterable[Compare] = (), success: Iterable[Any] = ()) -> TxnResult:
        store.segments_txn = txn  # type: ignore[method-assign]
        done.append(await opened(store, [first]))
        return await txn(compare, success)

    store.segments_txn = opening_first  # type: ignore[method-assign]
    with pytest.raises(NotAllowed, match="would not return"):
        await mark_unused(store, "sales", named([first.segment]))
    assert (await stored(store, first)).used
