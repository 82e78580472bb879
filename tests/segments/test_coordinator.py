"""The coordinator marks announced segments, durably, and removes abandoned publications (S2, seed 003)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from palisade.catalog.publication import MANIFESTS, Manifest, plan
from palisade.catalog.segment import RECORDS, Segment, SegmentRecord
from palisade.client.record_choice import in_interval, named
from palisade.client.segment_changes import mark_unused, reset_loaded, set_replicas
from palisade.metastore.requests import Compare, DeleteRange, Put, Range, Txn, prefix_end
from palisade.metastore.results import RangeResult, TxnResult
from palisade.segments.broker import END, ViewFeed
from palisade.segments.broker_view import BrokerView, OnMissing
from palisade.segments.coordinator import ABANDONED_S, SegmentCoordinator
from palisade.vault.change import Item
from palisade.wire.segment_errors import NoSuchDataSource, PublicationOvertaken, SegmentsUnavailable
from tests.support.fake_group import FakeGroup
from tests.support.segment_names import segment
from tests.support.vault_feed import full

DIGEST = "sha256:" + "0" * 64
A, B = segment(1), segment(2)
BOTH = A.id.interval._replace(end_ms=B.id.interval.end_ms)


class Cluster:
    """A store with the calls that coordinator and commands use. `before`: called once before a transaction."""

    def __init__(self) -> None:
        self.driver = full([])
        self.before: Callable[[], None] = lambda: None
        self.now = 0.0
        self.transactions = 0

    async def range(self, key: bytes, *, prefix: bool = False, revision: int = 0) -> RangeResult:
        return self.driver.store.range(Range(key, prefix_end(key) if prefix else b"", revision=revision))

    async def segments_txn(self, compare: Iterable[Compare] = (), success: Iterable[Any] = ()) -> TxnResult:
        before, self.before = self.before, lambda: None
        before()
        self.transactions += 1
        result: TxnResult = self.driver.do(Txn(tuple(compare), tuple(success)))  # type: ignore[assignment]
        return result

    async def view(self) -> BrokerView:
        found = self.driver.store.range(Range(b"palisade/segments/", END))
        feed = ViewFeed()
        for _ in feed.rows((Item(*kv) for kv in found.kvs), found.revision):
            pass
        return feed.view

    def coordinator(self) -> SegmentCoordinator:
        return SegmentCoordinator(self, self, FakeGroup(self.driver.store), lambda: self.now)

    def publish(self, *records: SegmentRecord) -> None:
        manifest = Manifest("flights")
        kvs = self.driver.store.range(Range(manifest.key)).kvs
        manifest = Manifest.from_bytes(manifest.key, kvs[0].value) if kvs else manifest
        planned = plan(manifest, {}, records)
        self.driver.do(Txn(success=tuple(Put(*each) for each in planned.parts[0])))
        self.driver.do(Put(manifest.key, planned.closing.to_bytes()))

    def announce(self, node: str, which: Segment) -> None:
        self.driver.do(Put(which.announcement_key(node)))

    def drop(self, node: str, which: Segment) -> None:
        self.driver.do(DeleteRange(which.announcement_key(node)))

    def mark(self, which: Segment) -> None:
        self.driver.do(Put(which.key, record(which).marked_loaded().to_bytes()))

    def record(self, which: Segment) -> SegmentRecord:
        kv = self.driver.store.range(Range(which.key)).kvs[0]
        return SegmentRecord.from_bytes(kv.key, kv.value)


def record(which: Segment) -> SegmentRecord:
    return SegmentRecord(which, 1, 10, 100, DIGEST, 2)


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.publish(record(A), record(B))
    return made


async def test_announced_segments_are_marked_in_one_transaction(cluster: Cluster) -> None:
    coordinator = cluster.coordinator()
    await coordinator.work()
    assert cluster.transactions == 0
    cluster.announce("n1", A)
    cluster.announce("n2", B)
    await coordinator.work()
    assert cluster.transactions == 1
    assert (cluster.record(A).loaded, cluster.record(B).loaded) == (True, True)
    await coordinator.work()
    assert cluster.transactions == 1


async def test_segment_whose_server_dies_while_loading_is_not_counted_on(cluster: Cluster) -> None:
    """Seed 003, 3.1: the server died before the transaction that marks the segment."""
    cluster.announce("n1", A)
    cluster.announce("n1", B)
    cluster.before = lambda: cluster.drop("n1", A)
    await cluster.coordinator().work()
    assert (cluster.record(A).loaded, cluster.record(B).loaded) == (False, True)
    cluster.drop("n1", B)
    view = await cluster.view()
    with pytest.raises(SegmentsUnavailable):
        view.lookup("flights", BOTH)


async def test_restarted_coordinator_forgets_nothing(cluster: Cluster) -> None:
    """Seed 003 keeps `loaded` in the memory of the coordinator."""
    cluster.announce("n1", A)
    await cluster.coordinator().work()
    cluster.drop("n1", A)
    await cluster.coordinator().work()
    with pytest.raises(SegmentsUnavailable) as caught:
        (await cluster.view()).lookup("flights", BOTH)
    assert caught.value.missing == (str(A),)


async def test_announcement_of_an_unknown_segment_is_ignored(cluster: Cluster) -> None:
    """Issue 17, "Bad input": nothing is served, and nothing is marked; a record that is published later counts."""
    cluster.announce("n1", segment(9))
    everything = BOTH._replace(end_ms=segment(9).id.interval.end_ms)
    await cluster.coordinator().work()
    assert cluster.transactions == 0
    assert (await cluster.view()).lookup("flights", everything, OnMissing.FAIL).parts == ()
    assert (await cluster.view()).state(segment(9)) is None
    cluster.publish(record(segment(9)))
    await cluster.coordinator().work()
    found = (await cluster.view()).lookup("flights", everything, OnMissing.FAIL).parts
    assert [part.segment for part in found] == [segment(9)]


async def test_mark_that_ignores_the_announcement_is_detected(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the transaction compares only the record."""
    original = Cluster.segments_txn

    async def only_records(self: Cluster, compare: Iterable[Compare] = (), success: Iterable[Any] = ()) -> TxnResult:
        return await original(self, [each for each in compare if each.key.startswith(RECORDS)], success)

    monkeypatch.setattr(Cluster, "segments_txn", only_records)
    with pytest.raises(AssertionError):
        await test_segment_whose_server_dies_while_loading_is_not_counted_on(cluster)


# Commands.


async def test_marking_unused_ends_that_queries_count_on_a_segment(cluster: Cluster) -> None:
    cluster.announce("n1", A)
    await cluster.coordinator().work()
    cluster.drop("n1", A)
    assert await mark_unused(cluster, "flights", in_interval(A.id.interval)) == [A]
    assert (await cluster.view()).lookup("flights", BOTH).missing == ()
    assert await mark_unused(cluster, "flights", in_interval(A.id.interval)) == []


async def test_interval_only_contains_segments_that_lie_in_it(cluster: Cluster) -> None:
    almost = BOTH._replace(end_ms=BOTH.end_ms - 1)
    assert await mark_unused(cluster, "flights", in_interval(almost)) == [A]


async def test_replication_factor_0_clears_loaded_in_the_same_transaction(cluster: Cluster) -> None:
    cluster.announce("n1", A)
    await cluster.coordinator().work()
    before = cluster.driver.store.revision
    assert await set_replicas(cluster, "flights", 0, named([A])) == [A]
    assert cluster.driver.store.revision == before + 1
    answer = (await cluster.view()).lookup("flights", BOTH)
    assert (answer.missing, answer.unserved) == ((), (A,))
    await set_replicas(cluster, "flights", 1, named([A]))
    await cluster.coordinator().work()
    assert cluster.record(A).loaded


async def test_reset_lets_queries_pass_until_segments_are_announced_again(cluster: Cluster) -> None:
    cluster.announce("n1", A)
    await cluster.coordinator().work()
    cluster.drop("n1", A)
    assert await reset_loaded(cluster, "flights") == [A]
    assert (await cluster.view()).lookup("flights", BOTH).missing == ()


async def test_concurrent_change_of_a_record_is_not_lost(cluster: Cluster) -> None:
    """A mark as loaded comes between the read and the transaction."""
    cluster.before = lambda: cluster.mark(A)
    assert await set_replicas(cluster, "flights", 3, named([A])) == [A]
    assert (cluster.record(A).replicas, cluster.record(A).loaded) == (3, True)


async def test_change_that_is_overtaken_again_and_again_is_refused(cluster: Cluster) -> None:
    def overtake() -> None:
        cluster.driver.do(Put(A.key, record(A).to_bytes()))
        cluster.before = overtake

    cluster.before = overtake
    with pytest.raises(PublicationOvertaken, match="repeat the command"):
        await set_replicas(cluster, "flights", 3, named([A]))


async def test_change_in_an_unknown_data_source_is_refused(cluster: Cluster) -> None:
    with pytest.raises(NoSuchDataSource, match="weather"):
        await reset_loaded(cluster, "weather")


# Abandoned publications.


def begin(cluster: Cluster, *records: SegmentRecord) -> int:
    """A staged publication that stops after its first part. Returns the revision of the manifest."""
    manifest = Manifest("flights", 1).with_pending()
    cluster.driver.do(Put(manifest.key, manifest.to_bytes()))
    revision = cluster.driver.store.revision
    for each in records:
        cluster.driver.do(Put(each.segment.key, replace(each, generation=2).to_bytes()))
    return revision


def manifest_of(cluster: Cluster) -> Manifest:
    kv = cluster.driver.store.range(Range(MANIFESTS + b"flights")).kvs[0]
    return Manifest.from_bytes(kv.key, kv.value)


async def test_abandoned_publication_is_removed_and_was_never_visible(cluster: Cluster) -> None:
    begin(cluster, record(segment(3)), record(segment(4)))
    coordinator = cluster.coordinator()
    for now in (0.0, ABANDONED_S - 1):
        cluster.now = now
        await coordinator.work()
        assert manifest_of(cluster).pending == (2,)
    cluster.now = ABANDONED_S
    await coordinator.work()
    assert manifest_of(cluster) == Manifest("flights", 2)
    assert {each.key for each in (await cluster.range(RECORDS, prefix=True)).kvs} == {A.key, B.key}


async def test_publication_that_makes_progress_is_not_removed(cluster: Cluster) -> None:
    begin(cluster, record(segment(3)))
    coordinator = cluster.coordinator()
    for step in range(4):
        cluster.now = step * (ABANDONED_S - 1)
        cluster.driver.do(Put(segment(4 + step).key, replace(record(segment(4 + step)), generation=2).to_bytes()))
        await coordinator.work()
    assert manifest_of(cluster).pending == (2,)


async def test_slow_publisher_cannot_write_after_the_removal_has_begun(cluster: Cluster) -> None:
    """Its records would become visible with a generation that is not pending any more."""
    revision = begin(cluster, record(segment(3)))
    coordinator = cluster.coordinator()
    await coordinator.work()
    late: list[bool] = []

    def publisher_continues() -> None:
        """Called within the removal, before its second transaction."""

        def write() -> None:
            from palisade.client.publishing import unchanged

            row = Put(segment(5).key, replace(record(segment(5)), generation=2).to_bytes())
            done = cluster.driver.do(Txn((unchanged(manifest_of(cluster), revision),), (row,)))
            late.append(done.succeeded)  # type: ignore[union-attr]

        cluster.before = write

    cluster.before = publisher_continues
    cluster.now = ABANDONED_S
    await coordinator.work()
    assert late == [False]
    assert manifest_of(cluster).pending == ()
    assert (await cluster.view()).lookup("flights", segment(5).id.interval).parts == ()
