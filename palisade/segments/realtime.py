"""The ingester: receives the rows of realtime segments, and serves them from its disk (seed 003, issue 17).

Guarantees, and why they hold:
- A row is acknowledged only when it is synced (`realtime_log.py`), and only while this node announces the segment with
  a lease that is valid by its own clock, counted from the send time of the renewal. A segment can be given up only
  while it is not announced (`client/realtime_changes.py`). Thus no row of a segment that was given up is acknowledged.
- The announcement of a growing segment compares its record, so a node with an old vault cannot announce a segment that
  was given up.
- A restarted node serves every acknowledged row. A node without the log of a segment never announces it, and never
  makes a new log for it: lookups report it as missing.
- A node that finds stored rows damaged acknowledges no more rows of that segment and ends its announcement: lookups
  report it as missing. Until an operator decides, its writer opens no other segment, because that would receive the
  same rows again.
- A batch that is sent again with its position is stored once; a different batch with that position is refused.
- A segment is opened by one transaction with its record, the manifest and the announcement. Its log is made before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from palisade.base.counted import counted
from palisade.catalog.errors import DamagedRow
from palisade.catalog.publication import Manifest
from palisade.catalog.realtime import grows, opening
from palisade.catalog.realtime_rows import BYTES_MAX, ROWS_MAX, Columns, encoded
from palisade.catalog.rows_digest import Value
from palisade.catalog.segment import RECORDS, ROOT, SegmentRecord
from palisade.catalog.timeline import Interval
from palisade.client.beside_growing import chunk_prefix, unchanged_chunk
from palisade.client.publishing import unchanged
from palisade.journal.errors import JournalDamaged
from palisade.metastore.requests import Compare, DeleteRange, Put, prefix_end
from palisade.metastore.results import TxnResult
from palisade.recovery.lifecycle import Component
from palisade.recovery.listeners import Listeners, Notification
from palisade.segments.holder import SegmentHolder
from palisade.segments.realtime_held import Held, HeldSegments
from palisade.segments.realtime_log import LogHeader
from palisade.segments.realtime_tally import RealtimeTally
from palisade.wire.segment_errors import (
    NoSuchSegment,
    NotIngesting,
    PublicationOvertaken,
    RealtimeFull,
    RealtimeRefused,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

ATTEMPTS = 10
PAUSE_S = 0.2
VAULT_CHECKS = 25
"""Maximum number of checks of the vault's revision after a failed compare, `PAUSE_S` apart: 5 s in total. This is
longer than a change waits for the lease of a dead node (T_proceed, 3.31 s); the vault receives a change once it is
released."""


class LeasedWrites(Protocol):
    """The methods of `leased_announcements.LeasedAnnouncements` that the ingester uses."""

    def is_announced(self, name: str) -> bool:
        """Whether it is announced under a lease that is valid now by the clock of this node."""
        ...

    def has_lease(self) -> bool: ...
    async def open(self, compare: Iterable[Compare], writes: Iterable[Put], name: str) -> TxnResult:
        """Executes the writes together with the announcement of the segment. Raises NotIngesting without a lease."""
        ...

    async def write(self, compare: Iterable[Compare], writes: Iterable[Put | DeleteRange]) -> TxnResult: ...
    def changed(self) -> None: ...


class RealtimeIngester(Component):
    """A component above the holder and below the announcer."""

    def __init__(
        self,
        holder: SegmentHolder,
        writes: LeasedWrites,
        logs: HeldSegments,
        listeners: Listeners,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        trouble: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`trouble`: why no write can reach the cluster at the moment; None if it can."""
        self.holder = holder
        self.writes = writes
        self.logs = logs
        self.held = logs.held
        self.tally = RealtimeTally()
        self.wakeup = asyncio.Event()
        self.trouble = trouble
        self._listeners, self._pause = listeners, pause
        self._opening = asyncio.Lock()
        self._started = False

    async def start(self) -> None:
        await self.logs.start()
        self._listeners.listen("realtime", self._on_change, below=ROOT)
        self._started = True

    def _require_started(self) -> None:
        if not self._started:
            raise NotIngesting(f"node {self.holder.node} is starting and has not read its realtime segments: retry")

    async def stop(self) -> None:
        self.logs.release()

    def _on_change(self, notification: Notification) -> None:
        """Never waits. Ignores keys outside ROOT: a notification may contain any changed key of the store."""
        keys = [event.key for event in notification.events if event.key.startswith(ROOT)]
        if any(name_of_record(key) in self.held for key in keys):
            self.writes.changed()
        if keys:
            self.wakeup.set()

    # Used by the announcer.

    def growing(self) -> set[str]:
        """The growing segments that this node has to announce. A segment with a damaged record stays announced."""
        found = set()
        for name, held in self.held.items():
            try:
                record = self.record(name)
                is_new = record is None and held.opened and not self._has_seen(held)
                if is_new or (record is not None and grows(record)):
                    found.add(name)
            except DamagedRow as error:
                log.warning("announcement of a realtime segment unchanged: name=%s error=%s", name, error)
                found.add(name)
        return found

    def _has_seen(self, held: Held) -> bool:
        """Whether the vault has the revision at which this process opened the segment."""
        return 0 < held.opened <= self.holder.vault.revision

    def record(self, name: str) -> SegmentRecord | None:
        """The record in the vault if this node is its ingester, else None: another node may have opened a segment of
        this name first. Raises DamagedRow."""
        record = self.holder.record(name)
        return record if record is not None and record.ingester == self.holder.node else None

    def is_taken(self, name: str) -> bool:
        """Whether another node has opened a segment of this name first; then an opening by this node has failed.

        Raises DamagedRow."""
        record = self.holder.record(name)
        return record is not None and record.ingester != self.holder.node

    # Opening.

    async def open(
        self, data_source: str, interval: Interval, columns: Columns, replicas: int, writer: str = ""
    ) -> Held:
        """A named `writer` gets its open segment again. The segment is opened even if the caller is cancelled.

        Raises NotAllowed, BadField, NotIngesting, PublicationOvertaken, RealtimeRefused, RealtimeNotStored, and the
        store's errors.
        """
        with self.tally.request(f"node {self.holder.node} cannot open a segment of {data_source}"):
            self._require_started()
            return await completed(self._open(data_source, interval, columns, replicas, writer))

    async def _open(self, data_source: str, interval: Interval, columns: Columns, replicas: int, writer: str) -> Held:
        async with self._opening:
            if writer and (found := self._of_writer(data_source, interval, writer)) is not None:
                if found.log.header.columns != columns:
                    known = ", ".join(f"{name}:{kind.value}" for name, kind in found.log.header.columns)
                    raise RealtimeRefused(f"segment {found.name} of writer {writer} has other columns: use {known}")
                return found
            for _ in range(ATTEMPTS):
                opened = await self._try_open(data_source, interval, columns, replicas, writer)
                if isinstance(opened, Held):
                    return opened
                await self._wait_for_revision(opened, data_source)
        raise PublicationOvertaken(f"publications of data source {data_source} by others came first repeatedly: retry")

    async def _wait_for_revision(self, revision: int, data_source: str) -> None:
        """Waits until the vault has `revision`: until then, the compare would fail again. Raises NotIngesting if the
        vault does not reach it in `VAULT_CHECKS` checks."""
        for _ in range(VAULT_CHECKS):
            await self._pause(PAUSE_S)
            if self.holder.vault.revision >= revision:
                return
        lv = self.holder.vault.revision
        raise NotIngesting(
            f"node {self.holder.node} did not open a segment of {data_source}: its vault is at revision {lv} and the "
            f"cluster at {revision}, because a change is not released yet or the node is recovering ('palisade status' "
            "shows fence and LV). Retry, or open the segment at another node"
        )

    def _of_writer(self, data_source: str, interval: Interval, writer: str) -> Held | None:
        self._require_no_damage(data_source, interval, writer)
        for held in self.held.values():
            if held.log.closed or not held.log.header.is_of(data_source, interval, writer):
                continue
            record = self.record(held.name)
            if record is None and not held.opened:
                raise NotIngesting(f"segment {held.name} is being opened for writer {writer}: retry")
            if record is None or grows(record):
                return held
        return None

    def _require_no_damage(self, data_source: str, interval: Interval, writer: str) -> None:
        """Refuses another segment for a writer with a damaged one: it would receive the same rows again, and both
        would be counted if the damaged one is restored.

        Raises RealtimeDamaged."""
        for damaged in self.logs.damaged.values():
            header = damaged.header
            if header is not None and header.is_of(data_source, interval, writer):
                record = self.record(str(header.segment))
                if record is not None and grows(record):
                    raise damaged.error(str(header.segment))

    async def _try_open(
        self, data_source: str, interval: Interval, columns: Columns, replicas: int, writer: str
    ) -> Held | int:
        """The opened segment; or, if the compare failed, the revision of the cluster at which it failed. Raises
        NotIngesting if this node cannot write or has no lease."""
        if (why := self.trouble()) is not None:
            raise NotIngesting(
                f"node {self.holder.node} cannot write to the cluster: {why}. Retry, or open it at a node "
                "that knows a leader ('palisade status')"
            )
        if not self.writes.has_lease():
            raise NotIngesting(f"node {self.holder.node} can announce nothing now: retry, or open it at another node")
        vault = self.holder.vault
        manifest, manifest_revision = Manifest(data_source), 0
        if (item := vault.get(manifest.key)) is not None:
            manifest, manifest_revision = Manifest.from_bytes(manifest.key, item.value), item.mod_revision
        seen = vault.revision
        present = {each.segment: each for each in self._records(data_source)}
        after, record = opening(manifest, present, interval, self.holder.node, replicas)
        compares = [unchanged(manifest, manifest_revision), unchanged_chunk(chunk_prefix(record.segment), seen)]
        held = await self.logs.create(LogHeader(record.segment, columns, writer))
        held.opening = True
        puts = [Put(record.segment.key, record.to_bytes()), Put(after.key, after.to_bytes())]
        try:
            done = await self.writes.open(compares, puts, held.name)
        except NotIngesting:  # nothing was written
            await self.discard(held)
            raise
        if not done.succeeded:
            await self.discard(held)
            return done.revision
        held.opened = done.revision
        return held

    def _records(self, data_source: str) -> Iterator[SegmentRecord]:
        start = RECORDS + data_source.encode() + b"/"
        for item in self.holder.vault.range(start, prefix_end(start)):
            yield SegmentRecord.from_bytes(item.key, item.value)

    async def discard(self, held: Held) -> None:
        """Remove the log once no reader uses it. Raises OSError."""
        await self.holder.readers.until_none(held.name)
        await self.logs.remove(held)

    # Rows.

    async def append(self, name: str, rows: Any, position: int | None = None) -> int:
        """Returns the number of rows of the segment, all of them synced. `position`: the number of rows before this
        batch; required if the batch may have been stored already.

        Raises BadRows, RealtimeRefused, RealtimeFull, NotIngesting, NoSuchSegment, RealtimeNotStored, RealtimeDamaged.
        """
        with self.tally.request(f"node {self.holder.node} cannot store rows of segment {name}"):
            held = self._one(name)
            batch, size_bytes = encoded(held.log.header.columns, rows)
            return await completed(self._append(held, batch, size_bytes, position))

    async def _append(self, held: Held, batch: list[bytes], size_bytes: int, position: int | None) -> int:
        async with held.lock:
            self._require_announced(held)
            if position is not None:
                batch = await self._not_stored(held, batch, position)
            if batch:
                self._require_room(held, len(batch), size_bytes)
                await held.log.append(batch, size_bytes)
                self._require_announced(held)
                self.tally.appended += len(batch)
            return held.log.rows

    async def _not_stored(self, held: Held, batch: list[bytes], position: int) -> list[bytes]:
        """The rows of a batch that are not stored yet. Raises RealtimeRefused, RealtimeDamaged."""
        rows = held.log.rows
        if not 0 <= position <= rows:
            raise RealtimeRefused(
                f"segment {held.name} has {counted(rows, 'row')}: append at position {rows}, not at {position}"
            )
        with self._readable(held):
            stored = await held.log.entries_from(position, min(len(batch), rows - position))
        if stored != batch[: len(stored)] or position + len(batch) < rows:
            raise RealtimeRefused(
                f"segment {held.name} has other rows after position {position}: it has {counted(rows, 'row')}"
            )
        return batch[len(stored) :]

    def _require_room(self, held: Held, rows: int, size_bytes: int) -> None:
        if held.log.closed:
            raise RealtimeRefused(f"segment {held.name} is closed: open another one for its interval")
        if held.log.rows + rows > ROWS_MAX or held.log.size_bytes + size_bytes > BYTES_MAX:
            raise RealtimeFull(
                f"segment {held.name} has {counted(held.log.rows, 'row')} and is full: close it and open another one"
            )

    def _require_announced(self, held: Held) -> None:
        if not self.writes.is_announced(held.name):
            raise NotIngesting(
                f"node {self.holder.node} does not announce segment {held.name} now, so it acknowledges no rows: "
                "repeat the batch with its position; palisade segments realtime list shows the state"
            )

    async def close_segment(self, name: str) -> Held:
        """End the growth of the segment, which is then handed off.

        Raises NoSuchSegment, NotIngesting, RealtimeNotStored, RealtimeDamaged."""
        with self.tally.request(f"node {self.holder.node} cannot close segment {name}"):
            held = self._one(name)
            await completed(self._close(held))
            return held

    async def _close(self, held: Held) -> None:
        async with held.lock:
            if not held.log.closed:
                await held.log.close()
                held.closed_at = self.logs.now()
        self.wakeup.set()

    # Reading.

    def served(self, name: str) -> Held | None:
        """The segment if it grows or its copy is not stored yet, else None. Raises DamagedRow."""
        held = self.held.get(name)
        if held is None or self.is_taken(name):
            return None
        record = self.record(name)
        if record is None:
            return held if held.opening and not self._has_seen(held) else None
        is_copied = not record.is_growing and self.holder.segment_store.has(name, record.digest)
        return held if record.used and record.replicas and not is_copied else None

    async def values(self, held: Held) -> list[list[Value]]:
        """All stored rows. Raises RealtimeDamaged, OSError."""
        with self._readable(held):
            return await held.log.values()

    @contextmanager
    def _readable(self, held: Held) -> Iterator[None]:
        try:
            yield
        except JournalDamaged as error:
            self.writes.changed()
            raise self.logs.damage_found(held, error.damage) from error

    def _one(self, name: str) -> Held:
        """Raises NoSuchSegment, NotIngesting, RealtimeDamaged."""
        self._require_started()
        if (held := self.held.get(name)) is None:
            if (damaged := self.logs.damage_of(name)) is not None:
                raise damaged
            raise NoSuchSegment(
                f"node {self.holder.node} receives no rows of segment {name}; 'palisade segments realtime list' shows "
                "its node and state"
            )
        return held


async def completed(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is completed even if the caller is cancelled."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return await asyncio.shield(task)


def name_of_record(key: bytes) -> str:
    return key.removeprefix(RECORDS).decode("utf-8", "backslashreplace")
