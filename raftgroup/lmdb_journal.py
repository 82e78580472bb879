"""The journal on disk: LMDB, a checksum per record, one transaction with fsync per sync.

Two tables. The checksum of a record covers its key, so a record stored under a wrong key is detected as well.

    log     key = index (8 bytes, big endian)                       value = crc32 (4) + term (8) + command
    meta    key = name: format, base, term (and vote), user:...     value = crc32 (4) + content

Guarantees, with reasons:
- A sync is one LMDB transaction with all changes since the last one. Thus a crash leaves the log as of a completed
  sync, or of the one in progress, never a part of one. LMDB is never opened without its own syncs.
- The loop fills the transaction, and the thread of `LoopCommits` only commits it. So LMDB's own locks are off
  (`lock=False`: a transaction may then end in another thread). They are replaced by `DirectoryLock` against other
  processes, one write transaction at a time, and reads that begin and end between two of them.
- Compaction moves the base in the next sync. Entries below the base are garbage, of which every sync removes a few.
  After a crash, the next start continues to remove it.
- A checksum is verified whenever a record is read, and the newest entries are read at every start; the structure of
  the file is checked before LMDB opens it (`palisade/base/lmdb_env.py`). Nothing damaged is served: JournalCorrupt.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import lmdb
import msgpack

from palisade.base.commit_thread import PATIENCE_S, LoopCommits
from palisade.base.counted import counted
from palisade.base.directory_lock import DirectoryLock
from palisade.base.durable_files import sync_directory
from palisade.base.lmdb_env import DAMAGE, DATA, closed_on_error, double_room, open_env, problem_of, room_for
from palisade.raftgroup.errors import DataDirectoryError, JournalCorrupt, NodeFailed
from palisade.raftgroup.journal import BufferedJournal, LogChanges, StoredLog
from palisade.raftgroup.ports import Entry

MEMORY_BYTES = 16 * 1024 * 1024

FORMAT_VERSION = 1
FORMAT_NAME = "palisade-journal"
REMEDY = (
    "This node's copy of the log cannot be trusted any more: remove its data directory and start it with --join, "
    "so that it joins as a new member and gets all data from the others. If no majority of healthy nodes is "
    "left, restore a backup"
)

_HEAD = struct.Struct(">IQ")
_INDEX = struct.Struct(">Q")
_CRC = struct.Struct(">I")
_KEY_AND_TERM = struct.Struct(">QQ")

entry_key: Callable[[int], bytes] = _INDEX.pack
pack: Callable[[object], bytes] = msgpack.packb
unpack: Callable[[bytes], list[Any]] = msgpack.unpackb

MAP_BYTES_MIN = 1 << 30
VERIFIED_AT_START = 1000
GARBAGE_PER_SYNC = 64
_FORMAT, _BASE, _TERM, _USER = b"format", b"base", b"term", b"user:"
CHECKED_BYTES_MAX = 256 * 1024 * 1024
"""A log of the length that `LogRetention` allows is checked in a tenth of a second. A larger file is not checked as a
whole, so that the node can start."""


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
        self._commits = LoopCommits("journal", patience_s)
        self._write: tuple[LogChanges, Callable[[Exception | None], None]] | None = None
        self.load = file.load

    def write(self, changes: LogChanges, ended: Callable[[Exception | None], None]) -> None:
        self._write = changes, ended
        try:
            commit = self._file.begin(changes)
        except Exception as error:
            ended(self._file.failure(error))
            return
        self._commits.begin(commit, self._ended)

    def close(self) -> None:
        self._commits.close()
        self._file.close()
        self._lock.release()

    def _ended(self, error: BaseException | None) -> None:
        """The commit has ended."""
        if self._write is None:
            return
        changes, ended = self._write
        if error is None:
            self._file.landed()
            ended(None)
        elif isinstance(error, lmdb.MapFullError):
            self._again(changes, ended)
        else:
            ended(self._file.failure(error))

    def _again(self, changes: LogChanges, ended: Callable[[Exception | None], None]) -> None:
        """The commit exceeded the size of the map: enlarge it, and write the same changes again."""
        try:
            self._file.grow()
        except Exception as error:
            ended(self._file.failure(error))
            return
        self.write(changes, ended)


class JournalFile:
    """The LMDB file: opened and checked, read, and filled with `LogChanges`. Independent of the event loop.

    `stored`: the content of the file when it was opened, with as many of the newest entries as were verified.
    """

    def __init__(self, directory: Path, memory_bytes: int) -> None:
        self._directory = directory
        problem = problem_of(directory, CHECKED_BYTES_MAX)
        if problem is not None:
            raise self._damaged(problem)
        self._env = open_env(
            directory,
            2,
            room_for(directory, MAP_BYTES_MIN),
            damaged=lambda error: self._damaged(str(error)),
            unusable=DataDirectoryError,
            lock=False,
            max_spare_txns=2,
        )
        with closed_on_error(self._env, self.failure):
            self._log, self._meta = self._open_tables()
            self._reader: Any = self._env.begin()
            self.stored = self._read_stored(memory_bytes)
            self._oldest = self._next_oldest = self._check_contiguous()
        self._base_index = self._next_base_index = self.stored.base_index

    def begin(self, changes: LogChanges) -> Callable[[], object]:
        """Fill a transaction; the returned function commits it, in any thread. Call `landed` afterwards."""
        while True:
            try:
                txn = self._env.begin(write=True)
                try:
                    self._fill(txn, changes)
                except BaseException:
                    txn.abort()
                    raise
                commit: Callable[[], object] = txn.commit
                return commit
            except lmdb.MapFullError:
                self.grow()
            except lmdb.Error as error:
                raise self.failure(error) from error

    def landed(self) -> None:
        """The commit has succeeded: later reads see it."""
        self._oldest, self._base_index = self._next_oldest, self._next_base_index
        self._reader.abort()
        self._reader = self._env.begin()

    def grow(self) -> None:
        """Double the size of the map. The file only takes the space in use. No transaction may be open."""
        self._reader.abort()
        try:
            double_room(self._env)
        except lmdb.Error as error:
            raise self.failure(error) from error
        self._reader = self._env.begin()

    def load(self, start: int, stop: int) -> Sequence[Entry]:
        """Committed entries, each verified. Raises JournalCorrupt."""
        try:
            with self._reader.cursor(self._log) as cursor:
                cursor.set_key(entry_key(start))
                return list(self._verified(cursor.iternext(), start, stop))
        except lmdb.Error as error:
            raise self.failure(error) from error

    def close(self) -> None:
        self._reader.abort()
        self._env.close()

    def failure(self, error: BaseException) -> NodeFailed:
        """The error of this package for an error of LMDB."""
        if isinstance(error, NodeFailed):
            return error
        if isinstance(error, DAMAGE):
            return self._damaged(str(error))
        return NodeFailed(
            f"the journal in {self._directory} can't be written: {error}. Nothing acknowledged is lost: make room on "
            "the disk, or replace it, and restart the node"
        )

    def _open_tables(self) -> tuple[Any, Any]:
        with self._env.begin(write=True) as txn:
            fresh = txn.stat()["entries"] == 0
            try:
                log = self._env.open_db(b"log", txn=txn, create=fresh)
                meta = self._env.open_db(b"meta", txn=txn, create=fresh)
            except (lmdb.NotFoundError, lmdb.IncompatibleError) as error:
                raise self._foreign() from error
            if fresh:
                txn.put(_FORMAT, meta_value(_FORMAT, pack([FORMAT_NAME, FORMAT_VERSION])), db=meta)
            self._check_format(txn.get(_FORMAT, db=meta))
        return log, meta

    def _check_format(self, value: bytes | None) -> None:
        if value is None:
            raise self._foreign()
        name, version = unpack(meta_from(_FORMAT, value))[:2]
        if name != FORMAT_NAME or not isinstance(version, int):
            raise self._foreign()
        if version > FORMAT_VERSION:
            raise DataDirectoryError(
                f"the journal in {self._directory} has format {version}, and this program knows up to "
                f"{FORMAT_VERSION}: start it with the newer program that wrote it"
            )

    def _damaged(self, problem: str) -> JournalCorrupt:
        return JournalCorrupt(
            f"{self._directory / DATA} is damaged, or not a journal of this program: {problem}. If it belongs to "
            f"something else, give the node its own data directory. {REMEDY}"
        )

    def _foreign(self) -> DataDirectoryError:
        return DataDirectoryError(
            f"{self._directory} holds an LMDB file that is not a journal: give the node its own data directory"
        )

    def _read_stored(self, memory_bytes: int) -> StoredLog:
        stored = StoredLog()
        with self._reader.cursor(self._meta) as cursor:
            for name, value in cursor.iternext():
                content = meta_from(name, value)
                if name == _BASE:
                    stored.base_index, stored.base_term = unpack(content)
                elif name == _TERM:
                    stored.term, stored.vote = unpack(content)
                elif name.startswith(_USER):
                    stored.meta[name[len(_USER) :].decode()] = content
        with self._reader.cursor(self._log) as cursor:
            stored.entries = self._newest(cursor, stored.base_index, memory_bytes)
        return stored

    def _newest(self, cursor: Any, base_index: int, memory_bytes: int) -> list[Entry]:
        entries: list[Entry] = []
        size = 0
        for key, value in cursor.iterprev() if cursor.last() else ():
            index = index_of(key)
            if index <= base_index or len(entries) == VERIFIED_AT_START or (entries and size > memory_bytes // 2):
                break
            if entries and entries[-1].index != index + 1:
                raise JournalCorrupt(f"entry {entries[-1].index - 1} of the log is missing. {REMEDY}")
            entries.append(entry_from(index, value))
            size += len(value)
        entries.reverse()
        return entries

    def _check_contiguous(self) -> int:
        """The oldest stored index, garbage included. No scan: the number of keys must fit first and last."""
        with self._reader.cursor(self._log) as cursor:
            if not cursor.first():
                return self.stored.base_index + 1
            first = index_of(cursor.key())
            cursor.last()
            last = index_of(cursor.key())
        count = self._reader.stat(self._log)["entries"]
        base = self.stored.base_index
        if count != last - first + 1 or first > base + 1 or last < base:
            raise JournalCorrupt(
                f"the log in {self._directory} holds {counted(count, 'entry')} from {first} to {last} on the base "
                f"{base}: some are missing. {REMEDY}"
            )
        return first

    def _verified(self, items: Iterator[tuple[bytes, bytes]], start: int, stop: int) -> Iterator[Entry]:
        for index, (key, value) in zip(range(start, stop), items, strict=False):
            if index_of(key) != index:
                raise JournalCorrupt(f"entry {index} of the log is missing. {REMEDY}")
            yield entry_from(index, value)
            start = index + 1
        if start < stop:
            raise JournalCorrupt(f"entry {start} of the log is missing. {REMEDY}")

    def _fill(self, txn: Any, changes: LogChanges) -> None:
        log = self._log
        if changes.forget:
            txn.drop(log, delete=False)
        elif changes.delete_from is not None:
            with txn.cursor(log) as cursor:
                found = cursor.set_range(entry_key(changes.delete_from))
                while found:
                    found = cursor.delete()
        for entry in changes.entries:
            txn.put(entry_key(entry.index), entry_value(entry), db=log, append=True)
        for name, content in changes.meta.items():
            self._put_meta(txn, _USER + name.encode(), content)
        if changes.term_and_vote is not None:
            self._put_meta(txn, _TERM, pack(changes.term_and_vote))
        self._next_base_index = self._base_index
        if changes.base is not None:
            self._put_meta(txn, _BASE, pack(changes.base))
            self._next_base_index = changes.base[0]
        self._next_oldest = self._next_base_index + 1 if changes.forget else self._oldest
        if self._next_oldest <= self._next_base_index:
            self._collect_garbage(txn)

    def _put_meta(self, txn: Any, name: bytes, content: bytes) -> None:
        txn.put(name, meta_value(name, content), db=self._meta)

    def _collect_garbage(self, txn: Any) -> None:
        oldest = self._next_oldest
        self._next_oldest = min(oldest + GARBAGE_PER_SYNC, self._next_base_index + 1)
        for index in range(oldest, self._next_oldest):
            txn.delete(entry_key(index), db=self._log)


def index_of(key: bytes) -> int:
    if len(key) != _INDEX.size:
        raise JournalCorrupt(f"a key of the log has {len(key)} bytes instead of {_INDEX.size}. {REMEDY}")
    return int(_INDEX.unpack(key)[0])


def entry_value(entry: Entry) -> bytes:
    crc = zlib.crc32(entry.command, zlib.crc32(_KEY_AND_TERM.pack(entry.index, entry.term)))
    return _HEAD.pack(crc, entry.term) + entry.command


def entry_from(index: int, value: bytes) -> Entry:
    """Raises JournalCorrupt if the value is not the one written for this index."""
    if len(value) >= _HEAD.size:
        crc, term = _HEAD.unpack_from(value)
        command = value[_HEAD.size :]
        if zlib.crc32(command, zlib.crc32(_KEY_AND_TERM.pack(index, term))) == crc:
            return Entry(command, index, term)
    raise JournalCorrupt(f"entry {index} of the log is not what was written (checksum). {REMEDY}")


def meta_value(name: bytes, content: bytes) -> bytes:
    return _CRC.pack(zlib.crc32(content, zlib.crc32(name))) + content


def meta_from(name: bytes, value: bytes) -> bytes:
    content = value[_CRC.size :]
    if len(value) >= _CRC.size and _CRC.unpack_from(value)[0] == zlib.crc32(content, zlib.crc32(name)):
        return content
    raise JournalCorrupt(f"record {name!r} of the journal is not what was written (checksum). {REMEDY}")
