"""Faults of brokers and publishers: what they check before they call an answer complete."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from palisade.catalog import publication
from palisade.catalog.publication import Manifest
from palisade.catalog.segment import ANNOUNCED, SegmentRecord
from palisade.catalog.timeline import Interval, Timeline, TimelineChunk
from palisade.catalog.timeline import _Members as Members
from palisade.client.publishing import PublishingStore
from palisade.metastore.requests import Compare
from palisade.metastore.results import TxnResult
from palisade.recovery.listeners import Notification
from palisade.segments.broker import SegmentBroker, ViewFeed
from palisade.segments.broker_view import BrokerView, Unmarked
from palisade.segments.coordinator import SegmentCoordinator
from tests.sim.plants.plant import Patch, Stage, caught_by


@caught_by("segment lookups", on=Stage("segments", 3))
def lookups_from_the_view_alone(patch: Patch) -> None:
    """Without a fenced read: a drop may have overtaken the view."""

    async def current(self: SegmentBroker) -> ViewFeed:
        return self._feed

    patch.setattr(SegmentBroker, "_current", current)


@caught_by("segment lookups", on=Stage("segments", 5), says="is marked as loaded")
def marks_without_an_announcement(patch: Patch) -> None:
    """The coordinator marks segments as loaded that are published, and compares only their records."""
    original = SegmentCoordinator._txn

    async def only_records(self: SegmentCoordinator, found: Iterable[Unmarked]) -> TxnResult:
        store, self._store = self._store, _WithoutAnnouncements(self._store)
        try:
            return await original(self, found)
        finally:
            self._store = store

    def unmarked(self: BrokerView, limit: int) -> list[Unmarked]:
        entries = [(source.manifest, each) for source in self._sources.values() for each in source.entries.values()]
        return [
            Unmarked(each.record, each.record_revision, each.segment, "n1")
            for manifest, each in entries
            if each.record is not None and needed(each.record) and manifest.is_visible(each.record)
        ]

    def needed(record: SegmentRecord) -> bool:
        return record.used and record.replicas > 0 and not record.loaded

    patch.setattr(SegmentCoordinator, "_txn", only_records)
    patch.setattr(BrokerView, "unmarked", unmarked)


@caught_by("segment lookups", on=Stage("segments", 4))
def overshadowing_without_core_partitions(patch: Patch) -> None:
    """A version replaces the older ones as soon as any of its partitions is loaded."""

    def any_settled(members: Members, key: tuple[Interval, int]) -> TimelineChunk | None:
        settled = tuple(each for _, each in sorted(members.segments.items()) if each.settled)
        return TimelineChunk(*key, settled) if settled else None

    patch.setattr(Members, "as_chunk", any_settled)


@caught_by("segment lookups", on=Stage("segments", 3))
def replacements_of_half_an_interval(patch: Patch) -> None:
    redraw = Timeline._redraw

    def half(timeline: Timeline, interval: Interval) -> None:
        redraw(timeline, Interval(interval.start_ms, (interval.start_ms + interval.end_ms) // 2))

    patch.setattr(Timeline, "_redraw", half)


@caught_by("segment lookups", on=Stage("segments", 12), says="which was visible before")
def publications_that_are_visible_from_their_first_part(patch: Patch) -> None:
    """Half of a publication is visible before the rest is written."""
    patch.setattr(Manifest, "with_pending", Manifest.with_visible)
    patch.setattr(Manifest, "without_pending", lambda self, generation: self)


@caught_by("segment lookups", on=Stage("segments", 11), says="which grows, 0 times")
def publications_that_hide_growing_rows(patch: Patch) -> None:
    """A newer version is published while an ingester receives rows of the interval."""
    patch.setattr(publication, "_check_growing", lambda present, segment: None)


@caught_by("segment lookups", on=Stage("segments", 3))
def lookups_as_of_the_last_fenced_read(patch: Patch) -> None:
    """It is trusted for as long as the node serves."""
    current = SegmentBroker._current

    async def trusting(self: SegmentBroker) -> ViewFeed:
        if self._reads().segments_state() is not None and self._seen is not None:
            return self._feed
        return await current(self)

    patch.setattr(SegmentBroker, "_current", trusting)


@caught_by("segment lookups", on=Stage("segments", 3))
def lookups_that_wait_for_no_notification(patch: Patch) -> None:
    """Of what the vault has committed; every third one is late for ever."""
    on_change = SegmentBroker._on_change

    def some(self: SegmentBroker, notification: Notification) -> None:
        if notification.revision % 3:
            on_change(self, notification)

    async def reach(self: SegmentBroker, lv: int) -> None:
        return

    patch.setattr(SegmentBroker, "_on_change", some)
    patch.setattr(SegmentBroker, "_reach", reach)


class _WithoutAnnouncements:
    def __init__(self, store: PublishingStore) -> None:
        self._store = store
        self.range = store.range

    async def segments_txn(self, compare: Iterable[Compare] = (), success: Iterable[Any] = ()) -> TxnResult:
        kept = [each for each in compare if not each.key.startswith(ANNOUNCED)]
        return await self._store.segments_txn(kept, success)
