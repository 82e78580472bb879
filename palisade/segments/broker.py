"""The broker of a node: finds the segments for a query, in a view that is never older than the node's vault (S2 to S5).

Guarantee: like a fenced read, a lookup returns the state as of a revision between its call and its return, or raises.
Reason: the view has every change up to LV, because listeners are notified before a revision is committed to the vault
(for a leap: in the same turn of the event loop). Every lookup also makes a fenced read of the released changes above LV
below `palisade/segments/`, which is a strict region. Together they are the state as of the read. A change that the view
receives twice has no effect, because changes are ordered by their revisions (`broker_view.py`).

While the vault must not be trusted, the policy of the region decides: the lookup is refused, or made in a view of rows
that the cluster returned for it. A broker does not answer before its first sync, and not while it receives a difference
in parts.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from palisade.base.errors import ELSEWHERE, TRY_AGAIN, PalisadeError
from palisade.catalog.errors import CatalogError, DamagedRow, NewerRow
from palisade.catalog.publication import MANIFESTS, Manifest
from palisade.catalog.segment import ANNOUNCED, RECORDS, ROOT, Segment, SegmentRecord, announced_by, segment_of_record
from palisade.catalog.timeline import Interval
from palisade.recovery.lifecycle import Component
from palisade.recovery.listeners import Listeners, Notification
from palisade.segments.broker_view import BrokerView, OnMissing, SegmentAnswer, SegmentState, ViewCounts
from palisade.vault.change import FIRST_REVISION, Item, VaultEvent
from palisade.vault.errors import Pending
from palisade.vault.regions import prefix_end
from palisade.vault.snapshot_reads import RecentChanges, Rows
from palisade.wire.segment_errors import BrokerNotSynced, NoSuchDataSource

log = logging.getLogger(__name__)

END = prefix_end(ROOT)
SLICE_ROWS = 500
"""Rows of a full sync that are read before other tasks get a turn."""
LOOKS = 100
"""Maximum number of fenced reads in one lookup; a read fails only if the node was fenced meanwhile."""
REACH_S = 1.0
"""How long a lookup waits for a notification of what the vault has committed."""


class RecentReads(Protocol):
    """`service.fenced_reads.FencedReads`."""

    def segments_state(self) -> object | None: ...
    async def recent(self, start: bytes, end: bytes | None) -> RecentChanges | Rows: ...


class VaultRange(Protocol):
    """The part of a vault that a full sync reads."""

    @property
    def revision(self) -> int: ...
    def range(self, start: bytes, end: bytes | None) -> Iterable[Item]: ...


class ViewFeed:
    """A view, and the rows of the store that it could not read. Pure.

    A row that cannot be read must not hide a segment: lookups in its data source fail until it is replaced or deleted.
    """

    def __init__(self) -> None:
        self.view = BrokerView()
        self.damaged: dict[bytes, tuple[str, CatalogError]] = {}
        """Key -> (data source, what is wrong)."""

    def change(self, event: VaultEvent) -> None:
        """Applies a change of any key; keys that the view does not need are ignored."""
        key, item = event.key, event.item
        revision = event.mod_revision if item is None else item.mod_revision
        if not key.startswith(ROOT) or revision <= self.view.settled:
            return
        try:
            self._change(revision, key, item)
        except CatalogError as error:
            self._note(key, error)
        else:
            self.damaged.pop(key, None)

    def _change(self, revision: int, key: bytes, item: Item | None) -> None:
        """Raises DamagedRow, NotAllowed."""
        if key.startswith(RECORDS):
            if item is None:
                self.view.remove_record(revision, segment_of_record(key))
            else:
                self.view.put_record(revision, SegmentRecord.from_bytes(key, item.value))
        elif key.startswith(ANNOUNCED):
            node, segment = announced_by(key)
            (self.view.withdraw if item is None else self.view.announce)(revision, node, segment)
        elif key.startswith(MANIFESTS):
            if item is None:
                self.view.put_manifest(revision, Manifest(key.removeprefix(MANIFESTS).decode("utf-8", "replace")))
            else:
                self.view.put_manifest(revision, Manifest.from_bytes(key, item.value))

    def _note(self, key: bytes, error: CatalogError) -> None:
        name = key.decode("utf-8", "backslashreplace")[:200]
        log.warning("row of the segments not usable: key=%s error=%s", name, error)
        if not key.startswith(ANNOUNCED):
            source = key.removeprefix(RECORDS).removeprefix(MANIFESTS).split(b"/")[0]
            self.damaged[key] = source.decode("utf-8", "backslashreplace"), error

    def require_readable(self, data_source: str) -> None:
        """Raises DamagedRow, NewerRow."""
        for source, why in self.damaged.values() if self.damaged else ():
            if source == data_source:
                kind = NewerRow if isinstance(why, NewerRow) else DamagedRow
                raise kind(f"lookups in data source {data_source} are refused: {why}")

    def rows(self, items: Iterable[Item], revision: int) -> Iterator[None]:
        """A full sync, in slices: iterate to the end. `items`: all rows below ROOT as of `revision`."""
        for number, item in enumerate(items, 1):
            self.change(VaultEvent(item.key, item.mod_revision, item))
            if not number % SLICE_ROWS:
                yield
        self.view.settle(revision)


class SegmentBroker(Component):
    """A component on the vault. `vault`, `reads`: those of the node, once it has started. `now`: for `age_s`, in s."""

    def __init__(
        self,
        listeners: Listeners,
        vault: Callable[[], VaultRange],
        reads: Callable[[], RecentReads],
        now: Callable[[], float],
    ) -> None:
        self._listeners = listeners
        self._now = now
        self._vault, self._reads = vault, reads
        self._feed = ViewFeed()
        self._whole = False
        """False before the first sync, and while the parts of a difference arrive."""
        self._unreleased_to = 0
        """A fenced node applies changes before their release, so the view may have unreleased changes up to this
        revision. A fenced read at this revision or later proves that they are released."""
        self._ahead: dict[bytes, int] = {}
        """Keys of changes that lookups have applied before the notification of the listener, with their revisions."""
        self._notified = 0
        """The listener was notified of all changes up to this revision."""
        self._seen: object | None = None
        """The state of the fenced reads (`segments_state`) at which the view was current."""
        self._moved = asyncio.Event()
        self._current_at: float | None = None
        self.lookups: Counter[str] = Counter()
        """By outcome: complete, missing, or the code of the error."""
        self.first_sync_s: float | None = None
        """How long the first sync took; None before it."""

    @property
    def revision(self) -> int:
        """The view has every change up to this revision; 0 before the first sync."""
        return self._feed.view.settled

    @property
    def is_synced(self) -> bool:
        return self._whole

    @property
    def age_s(self) -> float | None:
        """Time since a change or a lookup last showed that the view is current. None before the first sync."""
        return None if self._current_at is None else self._now() - self._current_at

    def counts(self) -> ViewCounts:
        return self._feed.view.counts()

    def _is_current(self) -> None:
        self._current_at = self._now()

    async def start(self) -> None:
        """The first sync: everything in the vault. The vault does not change before the components have started."""
        vault, began = self._vault(), self._now()
        revision = max(vault.revision, FIRST_REVISION)  # which has no changes, so no listener is notified of it
        for _ in self._feed.rows(vault.range(ROOT, END), revision):
            await asyncio.sleep(0)
        self._whole, self._unreleased_to, self._notified = True, revision, revision
        self._is_current()
        self.first_sync_s = self._now() - began
        self._listeners.listen("segments broker", self._on_change, below=ROOT)

    def _on_change(self, notification: Notification) -> None:
        """Receives single revisions and differences (leaps, snapshots). Never waits."""
        if notification.events and self._reads().segments_state() is None:
            self._unreleased_to = notification.revision
        for event in notification.events:
            self._feed.change(event)
            if self._ahead.get(event.key, 0) <= notification.revision:
                self._ahead.pop(event.key, None)
        self._whole = notification.last
        if notification.last:
            self._notified = notification.revision
            self._drop_keys_deleted_meanwhile(notification.revision)
            self._feed.view.settle(notification.revision)
            self._is_current()
            self._moved.set()

    def _drop_keys_deleted_meanwhile(self, revision: int) -> None:
        """Deletes keys that a lookup has added and that were deleted before `revision`. The notification does not name
        them: a difference from a snapshot has no keys that neither the vault nor the snapshot has."""
        for key in [key for key, changed in self._ahead.items() if changed <= revision]:
            del self._ahead[key]
            self._feed.change(VaultEvent(key, revision, None))

    async def lookup(
        self, data_source: str, interval: Interval, on_missing: OnMissing = OnMissing.FAIL
    ) -> SegmentAnswer:
        """Raises SegmentsUnavailable (only with FAIL), NoSuchDataSource, BrokerNotSynced, DamagedRow, VaultError."""
        try:
            feed = await self._current()
            feed.require_readable(data_source)
            answer = feed.view.lookup(data_source, interval, on_missing)
        except PalisadeError as error:
            self.lookups[error.code] += 1
            raise
        self.lookups["missing" if answer.missing else "complete"] += 1
        return answer

    async def data_sources(self) -> tuple[int, list[str]]:
        """The revision, and the names. Raises BrokerNotSynced, VaultError."""
        view = (await self._current()).view
        return view.settled, view.data_sources()

    async def segments(self, data_source: str) -> tuple[int, list[SegmentState]]:
        """The revision, and every segment of a data source. Raises as `lookup`."""
        view = await self._published(data_source)
        return view.settled, view.states(data_source)

    async def segment(self, segment: Segment) -> tuple[int, SegmentState | None]:
        """The revision, and the state of one segment; None if it has no record. Raises as `lookup`."""
        view = await self._published(segment.data_source)
        return view.settled, view.state(segment)

    async def _published(self, data_source: str) -> BrokerView:
        feed = await self._current()
        feed.require_readable(data_source)
        if not feed.view.is_published(data_source):
            raise NoSuchDataSource(
                f"no segment of data source {data_source} was ever published: palisade segments list shows the names"
            )
        return feed.view

    async def view(self) -> BrokerView:
        """The current view, for the coordinator. Raises BrokerNotSynced, VaultError."""
        return (await self._current()).view

    async def _current(self) -> ViewFeed:
        """The current view, or one that is made from the cluster's rows."""
        reads = self._reads()
        state = reads.segments_state()
        if self._whole and state is not None and state is self._seen:
            self._is_current()
            return self._feed
        for _ in range(LOOKS):
            found = await self._recent(reads)
            if isinstance(found, Rows):
                return await self._refetched(found)
            await self._reach(found.lv)
            if self._unreleased_to <= found.revision:
                for event in found.events:
                    self._feed.change(event)
                    if event.mod_revision > self._notified:
                        self._ahead[event.key] = event.mod_revision
                self._feed.view.settle(found.revision)
                self._seen = state
                self._is_current()
                return self._feed
        raise BrokerNotSynced(
            f"this node has changes of the segments up to revision {self._unreleased_to} that are not released yet"
            f"{TRY_AGAIN}{ELSEWHERE}"
        )

    async def _recent(self, reads: RecentReads) -> RecentChanges | Rows:
        try:
            return await reads.recent(ROOT, END)
        except Pending as error:
            raise Pending(
                f"{error}. It is released once the nodes that do not acknowledge it have lost their leases, within a "
                "few seconds; 'palisade fencing' names them"
            ) from None

    async def _refetched(self, rows: Rows) -> ViewFeed:
        feed = ViewFeed()
        for _ in feed.rows(rows.items, rows.revision):
            await asyncio.sleep(0)
        return feed

    async def _reach(self, lv: int) -> None:
        """Waits for the notification of `lv`: the vault may be readable before it. Raises BrokerNotSynced."""
        if self._whole and self._feed.view.settled >= lv:
            return
        try:
            async with asyncio.timeout(REACH_S):
                while not self._whole or self._feed.view.settled < lv:
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            raise BrokerNotSynced(
                f"this node has read the segments up to revision {self.revision}, not yet to {lv}{TRY_AGAIN}{ELSEWHERE}"
            ) from None
