"""The journal on disk: LMDB, a checksum per record, one transaction with fsync per sync.

Guarantees, with reasons:

- A sync is one LMDB transaction with all changes since the last one. So a crash leaves the log as of a completed sync,
  or of the one in progress, never a part of one. LMDB is never opened without its own syncs.
- The loop's thread fills the transaction; `CommitThread` only commits it. So LMDB's own locks are off (`lock=False`: a
  transaction may then end in another thread). They are replaced by `DirectoryLock` against other processes, one write
  transaction at a time, and reads that begin and end between two of them.
- Compaction moves the base in the next sync. Entries below the base are garbage, of which every sync removes a few.
  After a crash, the next start continues to remove it.
- A checksum is verified whenever a record is read, and the newest entries are read at every start; the structure of
  the file is checked before LMDB opens it (`palisade/base/lmdb_env.py`). Nothing damaged is served: JournalCorrupt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import lmdb

from palisade.base.commit_thread import PATIENCE_S, POLL_S, START_S, YIELD_S, BusyMeter, CommitTask, CommitThread
from palisade.base.directory_lock import DirectoryLock
from palisade.base.durable_files import sync_directory
from palisade.raftgroup.errors import DataDirectoryError
from palisade.raftgroup.journal import BufferedJournal, LogChanges
from palisade.raftgroup.journal_file import JournalFile

MEMORY_BYTES = 16 * 1024 * 1024


class LmdbJournal(BufferedJournal):
    """A `raftgroup.ports.Journal` in the directory `path`, which is created if missing.

    `memory_bytes`: maximum size of the stored entries that are also kept in memory. `patience_s`: maximum time for
    which a sync blocks an idle event loop before it continues in the background. Raises JournalCorrupt, and
    DataDirectoryError if the directory is in use, foreign, of a newer format or not writable.
    """

    def __init__(self, path: str | Path, *, memory_bytes: int = MEMORY_BYTES, patience_s: float = PATIENCE_S) -> None:
        directory = Path(path)
        lock = DirectoryLock(directory, DataDirectoryError)
        try:
            file = JournalFile(directory, memory_bytes)
            sync_directory(directory)
            sync_directory(directory.parent)
        except BaseException:
            lock.release()
            raise
        super().__init__(file.stored, LmdbStorage(file, lock, patience_s), memory_bytes)
        file.stored.entries.clear()


class LmdbStorage:
    """A `raftgroup.journal.LogStorage`: the loop fills a transaction of `file`, a thread commits it."""

    def __init__(self, file: JournalFile, lock: DirectoryLock, patience_s: float) -> None:
        self._file = file
        self._lock = lock
        self._thread = CommitThread("journal")
        self._patience_s = patience_s
        self._meter = BusyMeter()
        self._quick = True
        """The last commit ended within `patience_s`."""
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop that polls the thread's pipe."""
        self._poll: asyncio.TimerHandle | None = None
        self._commit: CommitTask | None = None
        self._write: tuple[LogChanges, Callable[[Exception | None], None]] | None = None
        self._closed = False
        self.load = file.load

    def write(self, changes: LogChanges, ended: Callable[[Exception | None], None]) -> None:
        """Fill and commit a transaction; wait in place by the rules of `base/commit_thread.py`."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._listen_in(loop)
        self._write = changes, ended
        try:
            self._commit = self._thread.submit(self._file.begin(changes))
        except Exception as error:
            self._end(self._file.failure(error))
            return
        self._look(START_S if self._meter.busy() or not self._quick else self._patience_s)
        if self._commit is not None:
            self._poll_later()

    def close(self) -> None:
        self._closed = True
        self._listen_in(None)
        self._thread.close()
        self._file.close()
        self._lock.release()

    def _listen_in(self, loop: asyncio.AbstractEventLoop | None) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._thread.bell)
        self._loop = loop
        if loop is not None:
            loop.add_reader(self._thread.bell, self._rung)

    def _rung(self) -> None:
        self._thread.bell.hush()
        self._look(0.0)

    def _poll_later(self) -> None:
        """One timer while commits are in progress, not one per commit."""
        if self._poll is None and self._loop is not None:
            self._poll = self._loop.call_later(POLL_S, self._polled)

    def _polled(self) -> None:
        self._poll = None
        self._look(YIELD_S)
        if self._commit is not None and not self._closed:
            self._poll_later()

    def _look(self, patience_s: float) -> None:
        """End the write if its commit has ended or ends within `patience_s`."""
        if self._commit is None or self._closed or not self._commit.wait(patience_s):
            return
        self._quick = self._commit.took_s < self._patience_s
        error = self._commit.error
        if error is None:
            self._file.landed()
            self._end(None)
        elif isinstance(error, lmdb.MapFullError):
            self._again()
        else:
            self._end(self._file.failure(error))

    def _again(self) -> None:
        """The commit exceeded the size of the map: enlarge it, and write the same changes again."""
        self._commit = None
        try:
            self._file.grow()
        except Exception as error:
            self._end(self._file.failure(error))
            return
        if self._write is not None:
            self.write(*self._write)

    def _end(self, failure: Exception | None) -> None:
        write, self._commit, self._write = self._write, None, None
        if write is not None:
            _, ended = write
            ended(failure)
