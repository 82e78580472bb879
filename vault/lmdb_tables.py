"""A vault's tables in LMDB: one file, one writer, readers in any process.

*Ordered and atomic without waiting for the disk.* LMDB runs with NOSYNC: a commit is in the page cache, in order, so
the death of the process loses nothing. Only a power failure can tear the file, because pages reach the disk in any
order. `directory.py` detects that one was possible, and the file is then verified as a whole before it is used. The
file is never mapped for writing: a full disk is then an error, not a signal, and stray pointers cannot corrupt it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import lmdb

from palisade.base.lmdb_env import DAMAGE, closed_on_error, double_room, open_env, used_bytes
from palisade.vault.directory import DATA, VaultDirectory, check_head
from palisade.vault.errors import RESET, VaultDamaged, VaultError, VaultUnusable
from palisade.vault.fence_file import FenceFile
from palisade.vault.lmdb_format import Tables, open_tables
from palisade.vault.record_check import CHECKSUMS
from palisade.vault.tables import Changes, Pause, VaultTable

T = TypeVar("T")
MAP_BYTES = 64 << 30
"""Address space; the file is only as large as its content. Doubled if it is ever full."""
READERS_MAX = 256
TABLES_SPARE = 16
COMMITS_PER_READER_CHECK = 1_000
"""How often slots of dead readers are cleared: such a slot may keep pages from being reused."""


class LmdbBackend:
    """The vault in `path`, created if missing. Raises VaultUnusable, VaultForeign, VaultNewer, VaultDamaged.

    `read_only`: a vault that a node may have open; nothing is created, marked or repaired. Otherwise the fence page is
    set to FENCED before LMDB is opened, and when it is closed.
    """

    def __init__(
        self, path: str | Path, *, read_only: bool = False, map_bytes: int = MAP_BYTES, boot_id: str | None = None
    ) -> None:
        self.directory = VaultDirectory(Path(path), boot_id)
        self._read_only = read_only
        self.fence: FenceFile | None = None
        self._commits = 0
        if read_only:
            self.directory.require_file()
        else:
            self.directory.claim()
        try:
            if not read_only:
                self.fence = FenceFile(self.directory.path, boot_id)
            check_head(self.directory.path)
            self.env = self._open(map_bytes)
            with closed_on_error(self.env, self.failure):
                self.tables = self._open_tables()
        except BaseException:
            self._let_go()
            raise
        self._marked = False
        self._slicing = False
        self._held: Any = None

    def hold(self) -> None:
        """From now on all reads are of this moment, until it is closed. Meanwhile the file may grow."""
        try:
            self._held = self._retried_if_grown(self.env.begin)
        except lmdb.Error as error:
            raise self.failure(error) from error

    @property
    def held(self) -> bool:
        return self._held is not None

    def _snapshot(self) -> Any:
        return self.env.begin() if self._held is None else nullcontext(self._held)

    def get(self, table: VaultTable, key: bytes) -> bytes | None:
        if self.tables[table] is None:
            return None
        try:
            with self._snapshot() as txn:
                sealed = txn.get(key, db=self.tables[table])
        except lmdb.Error as error:
            raise self.failure(error) from error
        return None if sealed is None else CHECKSUMS.unseal(table, key, sealed)

    def get_many(self, table: VaultTable, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        if not keys or self.tables[table] is None:
            return {}
        try:
            with self._snapshot() as txn, txn.cursor(self.tables[table]) as cursor:
                found = cursor.getmulti(sorted(keys))
        except lmdb.Error as error:
            raise self.failure(error) from error
        return dict(CHECKSUMS.unseal_all(table, found))

    def scan(self, table: VaultTable, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        if self.tables[table] is None:
            return
        try:
            with self._snapshot() as txn, txn.cursor(self.tables[table]) as cursor:
                for key, sealed in cursor.iternext() if cursor.set_range(start) else ():
                    if end is not None and key >= end:
                        return
                    yield key, CHECKSUMS.unseal(table, key, sealed)
        except lmdb.Error as error:
            raise self.failure(error) from error

    def key_pages(self, table: VaultTable, start: bytes, end: bytes | None, size: int) -> Iterator[list[bytes]]:
        if self.tables[table] is None:
            return
        try:
            with self._snapshot() as txn, txn.cursor(self.tables[table]) as cursor:
                found = cursor.iternext(values=False) if cursor.set_range(start) else iter(())
                while page := list(islice(found, size)):
                    if end is not None and page[-1] >= end:
                        page = page[: bisect_left(page, end)]
                        found = iter(())
                    if page:
                        yield page
        except lmdb.Error as error:
            raise self.failure(error) from error

    def commit(self, changes: Changes, cleared: Sequence[VaultTable] = ()) -> None:
        self._begin_to_write()
        while True:
            try:
                self._commit(changes, cleared)
                return
            except lmdb.MapFullError:
                self._grow()
            except lmdb.Error as error:
                raise self.failure(error) from error

    async def commit_in_slices(self, slices: Callable[[], Iterator[Changes]], pause: Pause) -> None:
        self._begin_to_write()
        self._slicing = True
        try:
            while True:
                try:
                    await self._commit_in_slices(slices(), pause)
                    return
                except lmdb.MapFullError:
                    self._grow()
                except lmdb.Error as error:
                    raise self.failure(error) from error
        finally:
            self._slicing = False

    async def _commit_in_slices(self, slices: Iterator[Changes], pause: Pause) -> None:
        txn = self.env.begin(write=True)
        try:
            for part in slices:
                for table, rows in part.items():
                    self._put(txn, table, rows)
                await pause()
        except BaseException:
            txn.abort()
            raise
        txn.commit()

    def _begin_to_write(self) -> None:
        if self._slicing:
            raise RuntimeError("a commit in slices is under way: nothing else may be committed meanwhile")
        if not self._marked:
            self.directory.mark_unsynced()
            self._marked = True
        self._commits += 1
        if self._commits % COMMITS_PER_READER_CHECK == 0:
            self._forget_dead_readers()

    def _forget_dead_readers(self) -> None:
        try:
            self.env.reader_check()
        except lmdb.Error as error:
            raise self.failure(error) from error

    def _commit(self, changes: Changes, cleared: Sequence[VaultTable]) -> None:
        with self.env.begin(write=True) as txn:
            for table in cleared:
                txn.drop(self.tables[table], delete=False)
            for table, rows in changes.items():
                self._put(txn, table, rows)

    def _put(self, txn: Any, table: VaultTable, rows: Mapping[bytes, bytes | None]) -> None:
        database = self.tables[table]
        puts = [(key, value) for key, value in rows.items() if value is not None]
        puts.sort()
        with txn.cursor(database) as cursor:
            cursor.putmulti(CHECKSUMS.seal_all(table, puts))
        if len(puts) != len(rows):
            for key, value in rows.items():
                if value is None:
                    txn.delete(key, db=database)

    def sync(self) -> None:
        """Everything committed is on the disk on return."""
        try:
            self.env.sync(True)
        except lmdb.Error as error:
            raise self.failure(error) from error

    def finds(self, table: VaultTable, keys: Sequence[bytes]) -> int:
        """How many of the keys a look-up finds: a scan does not use the separators that a look-up follows."""
        with self._snapshot() as txn, txn.cursor(self.tables[table]) as cursor:
            return sum(map(cursor.set_key, keys))

    def size_bytes(self) -> int:
        """The size that the file has reached."""
        return used_bytes(self.env)

    def close(self) -> None:
        """Always releases the file; raises VaultUnusable if it could not be synced."""
        self._let_go_of_snapshot()
        try:
            if self.fence is not None:
                self.fence.close()
            if self._marked:
                self.sync()
                self.directory.mark_synced()
        finally:
            self.env.close()
            self._let_go()

    def mark_verified(self) -> None:
        """The suspect file was verified as sound."""
        self.sync()
        self.directory.mark_synced()

    def abandon(self) -> None:
        """Close without syncing; a suspect file stays suspect."""
        self._let_go_of_snapshot()
        self.env.close()
        self._let_go()

    def _let_go_of_snapshot(self) -> None:
        if self._held is not None:
            self._held.abort()
            self._held = None

    def _let_go(self) -> None:
        if self.fence is not None:
            self.fence.close()
        self.directory.release()

    def failure(self, error: BaseException) -> VaultError:
        if isinstance(error, DAMAGE):
            return VaultDamaged(f"the vault in {self.directory.path} is damaged: {error}. Stop the node, then {RESET}")
        return VaultUnusable(
            f"the vault in {self.directory.path} can't be used: {error}. Its content is unchanged: make room on the "
            "disk, or make it writable, and start the node again"
        )

    def _grow(self) -> None:
        try:
            double_room(self.env)
        except lmdb.Error as error:
            raise self.failure(error) from error

    def _open(self, map_bytes: int) -> Any:
        return open_env(
            self.directory.path,
            len(VaultTable) + TABLES_SPARE,
            map_bytes,
            damaged=lambda error: VaultDamaged(f"{self.directory.path / DATA} is damaged ({error}): {RESET}"),
            unusable=VaultUnusable,
            max_readers=READERS_MAX,
            max_spare_txns=4,
            readonly=self._read_only,
            sync=False,
            metasync=False,
        )

    def _retried_if_grown(self, look: Callable[[], T]) -> T:
        """A file that another process writes may grow beyond the mapped part between any two reads."""
        while True:
            try:
                return look()
            except lmdb.MapResizedError:
                self.env.set_mapsize(0)

    def _open_tables(self) -> Tables:
        if not self._read_only:
            self.env.reader_check()
        return self._retried_if_grown(lambda: open_tables(self.env, self.directory, read_only=self._read_only))
