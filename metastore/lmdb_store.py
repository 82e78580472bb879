"""The ordered map on disk, with deferred writes: applying never waits for a disk, and the file is always consistent.

Three layers, the upper one takes precedence: writes since the last flush began (`live`), writes being flushed
(`frozen`), and the file. Reasons for correctness:

- A flush writes everything that was written before some turn of the event loop, in one LMDB transaction. Batches are
  applied within one turn, so the file always has the state after some batch, and META's applied record with it.
- The file is never opened without LMDB's syncs. A crash loses the upper layers, which the log of the group still has:
  it is compacted only up to `durable`.
- The transaction begins and ends in its own thread (LMDB's lock belongs to a thread). The event loop's thread does the
  puts, in slices: a second thread would compete for the interpreter's lock at every item.
- Nothing is written to a file that was not verified as a whole since it was opened (`file_verification.py`).

A failure stops the node (StoreFailed, StoreCorrupt); a half-flushed state is never visible, on disk or in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import lmdb

from palisade.base.commit_thread import DiskThread
from palisade.base.snapshots import SnapshotMeta
from palisade.metastore.errors import StoreCorrupt
from palisade.metastore.file_verification import (
    VERIFIED_AT_ONCE_BYTES,
    Verification,
    check_at_rest,
    check_structure,
    check_values,
)
from palisade.metastore.flush import commit_layers
from palisade.metastore.flush_policy import FlushPolicy
from palisade.metastore.lmdb_file import MAP_BYTES_MIN, LmdbFile
from palisade.metastore.ordered_map import APPLIED_KEY, Owned, Peeked, Table, decode_applied
from palisade.metastore.snapshot import StoreSnapshotReader
from palisade.metastore.snapshot_source import open_source
from palisade.metastore.snapshot_writer import StoreSnapshotWriter
from palisade.metastore.store_directory import StoreDirectory
from palisade.metastore.store_errors import StoreFailed
from palisade.metastore.write_overlay import merged, new_layers

LOOK_S = 0.1
_ABSENT: Any = object()


class LmdbStore(Owned):
    """An `OrderedMap` in the directory `path`, created if missing. One event loop owns it.

    `map_bytes` is the initial address space; it grows as needed. Files up to `verified_at_once_bytes` are verified
    before they are used, larger ones during use. Raises StoreFailed (in use, not writable, I/O error) and
    metastore.errors.StoreCorrupt (damaged, foreign, newer format).
    """

    def __init__(
        self,
        path: str | Path,
        *,
        map_bytes: int = MAP_BYTES_MIN,
        policy: FlushPolicy | None = None,
        verified_at_once_bytes: int = VERIFIED_AT_ONCE_BYTES,
    ) -> None:
        self.directory = StoreDirectory(Path(path))
        self._map_bytes = map_bytes
        self._policy = policy or FlushPolicy()
        self._verification: Verification | None = None
        try:
            self._judge_incoming()
            self.file = self._open(verified_at_once_bytes)
        except BaseException:
            self.directory.release()
            raise
        self._live, self._frozen = new_layers(), new_layers()
        self._generation = 0
        self._waiting_since: float | None = None
        self._failure: BaseException | None = None
        self._closed = False
        self._writer: StoreSnapshotWriter | None = None
        self._flushing = asyncio.Lock()
        self.thread = DiskThread("store")

    # The ordered map

    def get(self, table: Table, key: bytes) -> bytes | None:
        value = self._live[table].values.get(key, _ABSENT)
        if value is _ABSENT:
            value = self._frozen[table].values.get(key, _ABSENT)
            if value is _ABSENT:
                return self.file.get(table, key)
        found: bytes | None = value
        return found

    def get_many(self, table: Table, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        live, frozen = self._live[table].values, self._frozen[table].values
        if not live and not frozen:
            return self.file.get_many(table, keys) if keys else {}
        found: dict[bytes, bytes] = {}
        in_file: list[bytes] = []
        for key in keys:
            value = live.get(key, _ABSENT)
            if value is _ABSENT:
                value = frozen.get(key, _ABSENT)
                if value is _ABSENT:
                    in_file.append(key)
                    continue
            if value is not None:
                found[key] = value
        if in_file:
            found.update(self.file.get_many(table, in_file))
        return found

    def put_many(self, table: Table, items: Mapping[bytes, bytes]) -> None:
        layer = self._live[table]
        layer.values.update(items)
        layer.bytes += sum(map(len, items)) + sum(map(len, items.values()))

    def put(self, table: Table, key: bytes, value: bytes) -> None:
        layer = self._live[table]
        layer.values[key] = value
        layer.bytes += len(key) + len(value)

    def delete(self, table: Table, key: bytes) -> None:
        layer = self._live[table]
        layer.values[key] = None
        layer.bytes += len(key)

    def scan(
        self, table: Table, start: bytes, end: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        live, generation = self._live[table], self._generation
        written = live.bytes
        items: Iterator[tuple[bytes, bytes | None]] = self.file.scan(table, start, end, reverse)
        for layer in (self._frozen[table], live):
            if layer.values and layer.touches(start, end):
                items = merged(layer.scan(start, end, reverse), items, reverse)
        for key, value in items:
            if value is not None:
                yield key, value
                if live.bytes != written or self._generation != generation:
                    raise RuntimeError(f"table {Table(table).name} changed during a scan: collect the keys first")

    def peek(self, table: Table, start: bytes, end: bytes | None, limit: int) -> tuple[list[Peeked], bytes | None]:
        found, more = self.file.peek(table, start, end, limit)
        rows: list[tuple[bytes, Any]] = found
        behind = rows[-1][0] + b"\0" if more else None
        for layer in (self._frozen[table], self._live[table]):
            if layer.values and layer.touches(start, behind or end):
                merged_rows = merged(layer.scan(start, behind or end, False), iter(rows), False)
                rows = [row for row in merged_rows if row[1] is not None]
        return rows, behind

    # Durability

    @property
    def applied(self) -> tuple[int, int]:
        """(index, term) of META's present applied record."""
        return decode_applied(self.get(Table.META, APPLIED_KEY))

    @property
    def durable(self) -> tuple[int, int]:
        """(index, term) of META's applied record in the file."""
        return decode_applied(self.file.get(Table.META, APPLIED_KEY))

    @property
    def waiting_entries(self) -> int:
        return sum(len(layer.values) for layer in self._live)

    @property
    def waiting_bytes(self) -> int:
        return sum(layer.bytes for layer in self._live)

    def needs_flush(self, now: float) -> bool:
        """Whether a flush is due by the policy; `now` in seconds of any monotonic clock."""
        entries = self.waiting_entries
        if entries == 0:
            self._waiting_since = None
            return False
        if self._waiting_since is None:
            self._waiting_since = now
        return self._policy.is_due(entries, self.waiting_bytes, now - self._waiting_since)

    async def flush(self) -> None:
        """Return when everything written before the call is in the file. Raises errors that stop the node.

        It continues if the caller is cancelled.
        """
        await asyncio.shield(asyncio.ensure_future(self._flush()))

    async def _flush(self) -> None:
        async with self._flushing:
            await self._until_usable()
            if self.waiting_entries:
                try:
                    await self._flush_frozen()
                except BaseException as error:
                    self._failure = error
                    raise

    async def run(self, clock: Callable[[], float]) -> None:
        """Flush when due, until cancelled. Raises errors that must stop the node, also those of the verification."""
        while True:
            await asyncio.sleep(LOOK_S)
            self._check_usable()
            self._look_at_verification()
            if self.needs_flush(clock()):
                await self.flush()

    def close(self) -> None:
        """Drops unflushed writes, as in a crash: `flush` first for a quick next start."""
        if self._closed:
            return
        self._closed = True
        if self._writer is not None:
            self._writer.close()
        self._verified()
        self.thread.close()
        self.file.close()
        self.directory.release()

    # Snapshots

    async def open_snapshot(self) -> StoreSnapshotReader:
        """The state of `durable`, after a flush, read while the store continues. Close it: it makes the file grow."""
        await self.flush()
        return open_source(self.file, self.durable)

    def receive_snapshot(self, meta: SnapshotMeta) -> StoreSnapshotWriter:
        """One at a time. Continues an earlier transfer of the same snapshot."""
        if self._writer is not None:
            self._writer.close()
        self._writer = StoreSnapshotWriter(self.directory, meta, self._replace)
        return self._writer

    async def _replace(self) -> None:
        """Make the complete `incoming` directory the content, replacing everything."""
        async with self._flushing:
            self._check_usable()
            self._failure = StoreFailed("the store is being replaced by a snapshot")
            self.file.close()
            try:
                self.directory.swap()
            except OSError as error:
                raise StoreFailed(f"a received snapshot cannot become the store: {error}. Restart the node") from error
            self.file = LmdbFile(self.directory.current, map_bytes=self._map_bytes)
            self._verified()
            self._live, self._frozen = new_layers(), new_layers()
            self._generation += 1
            self._failure = None
        self.owner.reload()

    def _open(self, verified_at_once_bytes: int) -> LmdbFile:
        current = self.directory.current
        data = current / "data.mdb"
        at_once = self.directory.suspect or not data.exists() or data.stat().st_size <= verified_at_once_bytes
        if at_once:
            check_structure(current)
        file = LmdbFile(current, map_bytes=self._map_bytes)
        try:
            if at_once:
                check_values(file)
            else:
                self._verification = Verification(current)
            self.directory.mark_unverified(not at_once)
            self.directory.sync()
        except BaseException:
            file.close()
            raise
        return file

    def _judge_incoming(self) -> None:
        """A transfer interrupted by a crash is continued only if its file is sound."""
        try:
            if self.directory.incoming.exists():
                check_at_rest(self.directory.incoming)
        except (StoreCorrupt, StoreFailed):
            self.directory.drop_incoming()

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise StoreFailed("the store has failed: restart the node") from self._failure
        if self._closed:
            raise StoreFailed("the store is closed")

    def _look_at_verification(self) -> None:
        try:
            if self._verification is not None and self._verification.outcome():
                self._verified()
        except BaseException as error:
            self._verification, self._failure = None, error
            raise

    def _verified(self) -> None:
        if self._verification is not None:
            self._verification.close()
            self._verification = None
            self.directory.mark_unverified(False)

    async def _until_usable(self) -> None:
        self._check_usable()
        self._look_at_verification()
        while self._verification is not None:
            await asyncio.sleep(LOOK_S)
            self._check_usable()
            self._look_at_verification()

    async def _flush_frozen(self) -> None:
        self.owner.saving()
        self._frozen, self._live = self._live, new_layers()
        self._generation += 1
        self._waiting_since = None
        while True:
            try:
                await commit_layers(self.file, self.thread, self._frozen)
                break
            except lmdb.MapFullError:
                self._grow()
            except lmdb.Error as error:
                raise self.file.failure(error) from error
        self.file.renew()
        flushed, self._frozen = self._frozen[Table.KEY], new_layers()
        self._generation += 1
        self.owner.flushed(flushed.keys(), flushed.values)

    def _grow(self) -> None:
        self._generation += 1
        try:
            self.file.grow()
        except lmdb.Error as error:
            raise self.file.failure(error) from error
