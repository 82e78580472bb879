"""Receives a snapshot into a separate LMDB file, while the store continues.

Pieces are put into one transaction until it has `COMMIT_BYTES`; then a thread commits it, together with the position in
the stream: a restart continues from there. Pieces that arrive during a commit wait in memory. `finish` makes the file
the store by renaming (`store_directory.py`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import lmdb

from palisade.base.snapshots import SnapshotInvalid, SnapshotMeta
from palisade.metastore.errors import StoreCorrupt
from palisade.metastore.lmdb_file import LmdbFile
from palisade.metastore.ordered_map import APPLIED_KEY, Table, decode_applied
from palisade.metastore.snapshot import Assembly, Run
from palisade.metastore.store_directory import StoreDirectory
from palisade.metastore.store_errors import StoreFailed

COMMIT_BYTES = 4 * 1024 * 1024
ROOM_BYTES = 16 * COMMIT_BYTES
WAITING_PIECES_MAX = 64
POLL_S = 0.002

Piece = tuple[list[Run], list[Any], int]
"""Its rows, the position in the stream after it, its size."""


class StoreSnapshotWriter:
    """A `raftgroup.ports.SnapshotWriter`. `replace` makes `incoming` the store. Raises SnapshotInvalid, StoreFailed."""

    def __init__(self, directory: StoreDirectory, meta: SnapshotMeta, replace: Callable[[], Awaitable[None]]) -> None:
        self._meta = meta
        self._directory = directory
        self._replace = replace
        self._file = self._open()
        state = self._file.read_progress()
        if state is not None and state[0] != meta.id:
            self._drop()
            self._file, state = self._open(), None
        self._assembly = Assembly(meta, state)
        self._waiting: deque[Piece] = deque()
        self._txn: Any = None
        self._txn_bytes = 0
        self._progress: list[Any] = self._assembly.state
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="snapshot")
        self._commit: Future[Any] | None = None
        self._closed = False

    @property
    def next_chunk(self) -> int:
        return self._assembly.next_chunk

    def write(self, number: int, data: bytes) -> None:
        """Take the next piece; an earlier one is ignored. An invalid one changes nothing."""
        self._check_open()
        before = self._assembly.next_chunk
        runs = self._assembly.accept(number, data)
        if self._assembly.next_chunk == before:
            return
        self._waiting.append((runs, self._assembly.state, len(data)))
        if len(self._waiting) > WAITING_PIECES_MAX and self._commit is not None:
            wait([self._commit])
        self._put_waiting(2)

    async def finish(self) -> None:
        self._check_open()
        try:
            self._assembly.check_whole()
            while self._waiting or self._txn is not None or self._commit is not None:
                self._put_waiting(1)
                if not self._waiting and self._commit is None:
                    self._begin_commit()
                await asyncio.sleep(POLL_S if self._commit is not None else 0)
            self._check_content()
        except SnapshotInvalid:
            self.abort()
            raise
        self._close_file()
        self._directory.mark_complete()
        await self._replace()

    def abort(self) -> None:
        """Discard what was received."""
        if not self._closed:
            self._close_file()
            self._directory.drop_incoming()

    def close(self) -> None:
        """Stop; a later writer of the same snapshot continues with the committed pieces."""
        if not self._closed:
            self._close_file()

    def _open(self) -> LmdbFile:
        """The file with what was received before, if usable; otherwise it is received again."""
        try:
            return LmdbFile(self._directory.incoming, locked=False)
        except (StoreCorrupt, StoreFailed):
            self._directory.drop_incoming()
            return LmdbFile(self._directory.incoming, locked=False)

    def _drop(self) -> None:
        self._file.close()
        self._directory.drop_incoming()

    def _put_waiting(self, pieces: int) -> None:
        try:
            self._look_at_commit()
            while self._waiting and pieces > 0 and self._commit is None:
                self._put(self._waiting.popleft())
                pieces -= 1
                if self._txn_bytes >= COMMIT_BYTES:
                    self._begin_commit()
        except (lmdb.KeyExistsError, lmdb.BadValsizeError) as error:
            raise SnapshotInvalid(f"the rows of the snapshot {self._meta.id} are not in order: {error}") from error
        except lmdb.Error as error:
            raise self._file.failure(error) from error

    def _put(self, piece: Piece) -> None:
        runs, self._progress, size = piece
        if self._txn is None:
            self._file.ensure_room(ROOM_BYTES)
            self._txn = self._file.begin()
        for table, flat in runs:
            self._file.put_items(self._txn, Table(table), zip(flat[::2], flat[1::2], strict=True), append=True)
        self._txn_bytes += size

    def _begin_commit(self) -> None:
        if self._txn is not None:
            self._file.write_progress(self._txn, self._progress)
            self._commit = self._thread.submit(self._txn.commit)
            self._txn, self._txn_bytes = None, 0

    def _look_at_commit(self) -> None:
        if self._commit is not None and self._commit.done():
            commit, self._commit = self._commit, None
            commit.result()
            self._file.renew()

    def _check_content(self) -> None:
        rows = sum(self._file.count(table) for table in Table)
        applied = decode_applied(self._file.get(Table.META, APPLIED_KEY))
        if rows != self._assembly.rows or applied != (self._meta.index, self._meta.term):
            raise SnapshotInvalid(
                f"the snapshot {self._meta.id} was announced with {self._assembly.rows} rows at index "
                f"{self._meta.index}, and has {rows} rows at index {applied[0]}"
            )

    def _close_file(self) -> None:
        self._closed = True
        self._thread.shutdown(wait=True)
        if self._txn is not None:
            self._txn.abort()
        self._file.close()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreFailed(f"the snapshot {self._meta.id} is no longer being received")
