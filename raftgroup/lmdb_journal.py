"""The journal on disk: LMDB, a checksum per record, one transaction with fsync per sync.

What holds, and why:

- A sync is one LMDB transaction with everything that was written since the last one, so a crash leaves the log as
  of some completed sync, or of the one under way, whole. LMDB is never opened without its own syncs.
- The loop's thread fills the transaction; `CommitThread` only commits it. LMDB's own locks are therefore off
  (`lock=False`: a transaction may then end in another thread); in their place there is `DirectoryLock` against
  other processes, one write transaction at a time, and reads that begin and end between two of them.
- Compaction moves the base, in the next sync; the entries below it are garbage from then on, and every sync removes
  a few. A crash in between leaves garbage, which the next start goes on removing.
- A checksum is verified whenever a record is read, and the newest entries are read at every start; the structure of
  the file is checked before LMDB sees it (`base/lmdb_env.py`). Nothing damaged is served: JournalCorrupt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import lmdb

from base.commit_thread import PATIENCE_S, POLL_S, START_S, YIELD_S, BusyMeter, Commit, CommitThread
from base.directory_lock import DirectoryLock
from base.durable_files import sync_directory
from raftgroup.errors import DataDirectoryError, NodeFailed
from raftgroup.journal_file import JournalFile
from raftgroup.log_state import Changes, LogState
from raftgroup.ports import Entry

MEMORY_BYTES = 16 * 1024 * 1024


class LmdbJournal:
    """A `raftgroup.ports.Journal` in the directory `path`, which is made where it does not exist.

    `memory_bytes` bounds what is kept in memory of the entries that are on disk. `patience_s` is how long a sync may
    hold an event loop that has little else to do before it goes on in the background. Raises DataDirectoryError where
    the directory is in use, foreign, of a newer format or can't be written, and JournalCorrupt.
    """

    def __init__(self, path: str | Path, *, memory_bytes: int = MEMORY_BYTES, patience_s: float = PATIENCE_S) -> None:
        directory = Path(path)
        self._lock = DirectoryLock(directory, DataDirectoryError)
        try:
            self._file = JournalFile(directory, memory_bytes)
            sync_directory(directory)
            sync_directory(directory.parent)
        except BaseException:
            self._lock.release()
            raise
        self._state = LogState(self._file.stored, self._file.load, memory_bytes)
        self._file.stored.entries.clear()
        self._thread = CommitThread("journal")
        self._patience_s = patience_s
        self._meter = BusyMeter()
        self._quick = True
        """The last commit was over within that patience."""
        self._loop: asyncio.AbstractEventLoop | None = None
        """Which hears the bell of the thread."""
        self._poll: asyncio.TimerHandle | None = None
        self._commit: Commit | None = None
        self._changes: Changes | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._failure: NodeFailed | None = None
        self._closed = False

    @property
    def first(self) -> Entry:
        return self._state.base

    @property
    def last(self) -> Entry:
        return self._state.last

    @property
    def term(self) -> int:
        return self._state.term

    @property
    def vote(self) -> str | None:
        return self._state.vote

    @property
    def synced_index(self) -> int:
        return self._state.synced_index

    @property
    def dirty(self) -> bool:
        return self._state.dirty

    def term_at(self, index: int) -> int | None:
        return self._state.term_at(index)

    def slice(self, start: int, stop: int) -> Sequence[Entry]:
        return self._state.slice(start, stop)

    def append(self, entry: Entry) -> None:
        self._state.append(entry)

    def truncate_from(self, index: int) -> None:
        self._state.truncate_from(index)

    def compact_to(self, index: int) -> None:
        self._state.compact_to(index)

    def reset(self, index: int, term: int) -> None:
        self._state.reset(index, term)

    def set_term(self, term: int, vote: str | None) -> None:
        self._state.set_term(term, vote)

    def get_meta(self, name: str) -> bytes | None:
        return self._state.meta.get(name)

    def set_meta(self, name: str, value: bytes) -> None:
        self._state.set_meta(name, value)

    async def sync(self) -> None:
        """Callers that come while a commit is under way share the next one."""
        wanted = self._state.number
        while self._state.saved < wanted:
            self._check_usable()
            if self._commit is None:
                self._begin()
            else:
                await self._landing()

    def close(self) -> None:
        """What is not synced is lost, as in a crash."""
        if self._closed:
            return
        self._closed = True
        self._listen_in(None)
        self._thread.close()
        self._file.close()
        self._lock.release()
        self._wake(NodeFailed("the journal was closed"))

    def _begin(self) -> None:
        """Start a commit of everything."""
        self._listen_in(asyncio.get_running_loop())
        self._changes = self._state.take()
        self._submit(self._changes)

    def _submit(self, changes: Changes) -> None:
        try:
            self._commit = self._thread.submit(self._file.begin(changes))
        except Exception as error:
            self._fail(self._file.failure(error))
        else:
            self._poll_later()
            self._ask(START_S if self._meter.busy() or not self._quick else self._patience_s)

    def _listen_in(self, loop: asyncio.AbstractEventLoop | None) -> None:
        if loop is self._loop:
            return
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._thread.bell)
        self._loop = loop
        if loop is not None:
            loop.add_reader(self._thread.bell, self._rung)

    def _rung(self) -> None:
        self._thread.bell.hush()
        self._ask(0.0)

    def _poll_later(self) -> None:
        """For all the time that a commit takes; it is not set anew with each commit."""
        if self._poll is None and self._loop is not None:
            self._poll = self._loop.call_later(POLL_S, self._polled)

    def _polled(self) -> None:
        self._poll = None
        self._ask(YIELD_S)
        if self._commit is not None and not self._closed:
            self._poll_later()

    def _ask(self, patience_s: float) -> None:
        if self._commit is None or self._closed or not self._commit.wait(patience_s):
            return
        self._quick = self._commit.took_s < self._patience_s
        error = self._commit.error
        if error is None:
            self._landed()
        elif isinstance(error, lmdb.MapFullError):
            self._again()
        else:
            self._fail(self._file.failure(error))

    def _landed(self) -> None:
        changes, self._commit, self._changes = self._changes, None, None
        if changes is not None:
            self._file.landed()
            self._state.landed(changes)
        self._wake(None)

    def _again(self) -> None:
        """The commit itself needed more room than the file may have: allow more, and write the same again."""
        changes = self._changes
        try:
            self._file.grow()
        except Exception as error:
            self._fail(self._file.failure(error))
            return
        if changes is not None:
            self._submit(changes)

    async def _landing(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def _wake(self, failure: NodeFailed | None) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if waiter.done():
                continue
            if failure is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(failure)

    def _fail(self, failure: NodeFailed) -> None:
        self._failure, self._commit = failure, None
        self._wake(failure)

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise NodeFailed("the journal is closed")
