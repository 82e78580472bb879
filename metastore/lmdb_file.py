"""The LMDB file below the store: opened and verified, read through one snapshot, written in transactions.

One LMDB table per `Table`, and one for records about the file itself (format, a random name). LMDB always commits with
full syncs; py-lmdb 3 checks the structure of every page that it touches, so damage raises instead of crashing the
process; values have their own checksums (`palisade/base/checksums.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import lmdb
import msgpack

from palisade.base import long_keys
from palisade.base.lmdb_env import DAMAGE, DATA, closed_on_error, double_room, open_env, room_for, used_bytes
from palisade.metastore.errors import StoreCorrupt
from palisade.metastore.ordered_map import PEEK_BYTES, Table, in_bounds
from palisade.metastore.record_check import CHECKSUMS, REMEDY
from palisade.metastore.store_errors import StoreFailed

FORMAT_VERSION = 3
"""3: rows of leases in milliseconds. A store of format 2 is read, and has format 3 from its next commit on."""
FORMAT_VERSION_MIN = 2
FORMAT_NAME = "palisade-store"
MAP_BYTES_MIN = 1 << 30
SMALL_ROWS_MAX = PEEK_BYTES // 2048
"""Maximum rows of at most half a page that are fetched at once without checking the size of each."""
_ABOUT, _FORMAT, _PROGRESS = b"ABOUT", b"format", b"progress"


class LmdbFile:
    """`reader` is a snapshot as of the last `renew`. Raises StoreFailed and StoreCorrupt.

    Without `locked` a transaction may end in another thread than it began in; then there is no other snapshot, and
    `renew` follows every commit. `epoch` grows when all read transactions have ended (`grow`, `close`).
    """

    def __init__(
        self, directory: Path, *, map_bytes: int = MAP_BYTES_MIN, read_only: bool = False, locked: bool = True
    ) -> None:
        self.directory = directory
        self.epoch = 0
        self.env = self._open(map_bytes, read_only, locked and not read_only)
        with closed_on_error(self.env, self.failure):
            self._about, self._tables = self._open_tables()
            self.reader: Any = self.env.begin()
            self._format, self.name = self._check_format(self._read_about(_FORMAT))

    def get(self, table: Table, key: bytes) -> bytes | None:
        stored = long_keys.stored_key(key)
        try:
            sealed = self.reader.get(stored, None, self._tables[table])
        except lmdb.Error as error:
            raise self.failure(error) from error
        if sealed is None:
            return None
        value = CHECKSUMS.unseal(table, stored, sealed)
        return value if stored is key else long_keys.split(value)[1]

    def get_many(self, table: Table, keys: Sequence[bytes]) -> dict[bytes, Any]:
        """The values of the existing ones of the keys; at least one key."""
        short = max(map(len, keys)) <= long_keys.PREFIX_BYTES
        try:
            with self.reader.cursor(self._tables[table]) as cursor:
                stored = cursor.getmulti(keys if short else list(map(long_keys.stored_key, keys)))
        except lmdb.Error as error:
            raise self.failure(error) from error
        items = CHECKSUMS.unseal_all(table, stored)
        if short:
            return dict(items)
        return dict(long_keys.split(value) if long_keys.is_long(key) else (key, value) for key, value in items)

    def scan(self, table: Table, start: bytes, end: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        items = self.stored_items(self.reader, table, long_keys.stored_start(start), long_keys.stored_end(end), reverse)
        return long_keys.in_order(items, start, end, reverse)

    def peek(self, table: Table, start: bytes, end: bytes | None, limit: int) -> tuple[list[tuple[bytes, bytes]], bool]:
        """About `limit` rows (`in_bounds`), with values that are neither verified nor unsealed; and whether there may
        be more."""
        try:
            with self.reader.cursor(self._tables[table]) as cursor:
                found = cursor.set_range(start) if len(start) <= long_keys.PREFIX_BYTES else False
                rows, more = self._bounded(table, cursor.iternext(), limit) if found else ([], False)
        except lmdb.Error as error:
            raise self.failure(error) from error
        if len(start) > long_keys.PREFIX_BYTES or long_keys.LONG_BYTES in map(len, map(itemgetter(0), rows)):
            return in_bounds(self.scan(table, start, end, False), limit)
        if end is not None and rows and rows[-1][0] >= end:
            return [row for row in rows if row[0] < end], False
        return rows, more

    def _bounded(
        self, table: Table, rows: Iterator[tuple[bytes, bytes]], limit: int
    ) -> tuple[list[tuple[bytes, bytes]], bool]:
        """As `in_bounds`. A row larger than half a page has overflow pages: without such pages all rows are small."""
        if limit > SMALL_ROWS_MAX or self.reader.stat(self._tables[table])["overflow_pages"]:
            return in_bounds(rows, limit)
        found = list(islice(rows, limit))
        return found, len(found) == limit

    def stored_items(
        self, txn: Any, table: Table, start: bytes, end: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """(stored key, stored value), verified, with start <= key < end, in stored form."""
        try:
            with txn.cursor(self._tables[table]) as cursor:
                if not reverse:
                    for key, sealed in cursor.iternext() if cursor.set_range(start) else ():
                        if end is not None and key >= end:
                            return
                        yield key, CHECKSUMS.unseal(table, key, sealed)
                    return
                found = cursor.prev() if end is not None and cursor.set_range(end) else cursor.last()
                for key, sealed in cursor.iterprev() if found else ():
                    if key < start:
                        return
                    yield key, CHECKSUMS.unseal(table, key, sealed)
        except lmdb.Error as error:
            raise self.failure(error) from error

    def finder(self, table: Table) -> Callable[[bytes], bool]:
        """A function that checks whether a look-up finds a stored key; valid until the next `renew`."""
        find: Callable[[bytes], bool] = self.reader.cursor(self._tables[table]).set_key
        return find

    def content_bytes(self) -> int:
        """The size of the pages in use."""
        stats = [self.reader.stat(database) for database in self._tables]
        return sum(
            stat["psize"] * (stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]) for stat in stats
        )

    def count(self, table: Table) -> int:
        entries: int = self.reader.stat(self._tables[table])["entries"]
        return entries

    def begin(self) -> Any:
        """A write transaction; it must end in the thread in which it began."""
        txn = self.env.begin(write=True)
        if self._format != FORMAT_VERSION:
            self._write_about(txn, _FORMAT, [FORMAT_NAME, FORMAT_VERSION, self.name])
        return txn

    def put_items(
        self, txn: Any, table: Table, items: Iterable[tuple[bytes, bytes | None]], append: bool = False
    ) -> None:
        """Keys and values in the caller's form; None deletes. `append`: all are after the last key of the table."""
        puts, deletes = [], []
        for key, value in items:
            if value is None:
                deletes.append(long_keys.stored_key(key))
            elif len(key) <= long_keys.PREFIX_BYTES:
                puts.append((key, value))
            else:
                puts.append((long_keys.stored_key(key), long_keys.stored_value(key, value)))
        database = self._tables[table]
        with txn.cursor(database) as cursor:
            cursor.putmulti(CHECKSUMS.seal_all(table, puts), append=append)
        for key in deletes:
            txn.delete(key, db=database)

    def renew(self) -> None:
        """Read the latest commit."""
        self.reader.abort()
        self.reader = self.env.begin()
        if self._format != FORMAT_VERSION:
            self._format, _ = self._check_format(self._read_about(_FORMAT))

    def grow(self) -> None:
        """Double the map; the file occupies only the used part. Ends every read transaction of this process."""
        self.epoch += 1
        self.reader.abort()
        double_room(self.env)
        self.reader = self.env.begin()

    def ensure_room(self, size_bytes: int) -> None:
        """Grow until the next transaction can take `size_bytes`."""
        while self.used_bytes() + size_bytes > self.env.info()["map_size"]:
            self.grow()

    def used_bytes(self) -> int:
        """The size that the file has reached, free pages included."""
        return used_bytes(self.env)

    def read_progress(self) -> list[Any] | None:
        return self._read_about(_PROGRESS)

    def write_progress(self, txn: Any, progress: Sequence[Any] | None) -> None:
        """A small record of the caller, updated in the same transaction as the data that it describes."""
        if progress is None:
            txn.delete(_PROGRESS, db=self._about)
        else:
            self._write_about(txn, _PROGRESS, progress)

    def close(self) -> None:
        self.epoch += 1
        self.reader.abort()
        self.env.close()

    def failure(self, error: BaseException) -> StoreFailed | StoreCorrupt:
        if isinstance(error, DAMAGE):
            return StoreCorrupt(f"the store in {self.directory} is damaged: {error}. {REMEDY}")
        return StoreFailed(
            f"the store in {self.directory} can't be used: {error}. Nothing acknowledged is lost, the log still has "
            "it: make room on the disk, or repair the disk, and restart the node"
        )

    def _open(self, map_bytes: int, read_only: bool, locked: bool) -> Any:
        def damaged(error: Exception) -> StoreCorrupt:
            return StoreCorrupt(
                f"{self.directory / DATA} is not a store that this program can read ({error}): give the node its own "
                f"data directory. If it is a store, it is damaged. {REMEDY}"
            )

        try:
            if not read_only:
                self.directory.mkdir(parents=True, exist_ok=True)
            room_bytes = room_for(self.directory, map_bytes)
        except OSError as error:
            raise StoreFailed(f"{self.directory} can't be used: {error}. Choose another directory") from error
        return open_env(
            self.directory,
            len(Table) + 8,
            room_bytes,
            damaged=damaged,
            unusable=StoreFailed,
            max_spare_txns=4,
            readonly=read_only,
            lock=locked,
        )

    def _open_tables(self) -> tuple[Any, list[Any]]:
        if self.env.stat()["entries"] == 0:
            self._create()
        try:
            about = self.env.open_db(_ABOUT, create=False)
            return about, [self.env.open_db(table.name.encode(), create=False) for table in Table]
        except (lmdb.NotFoundError, lmdb.IncompatibleError) as error:
            raise self._foreign() from error

    def _create(self) -> None:
        with self.env.begin(write=True) as txn:
            self._about = self.env.open_db(_ABOUT, txn=txn)
            for table in Table:
                self.env.open_db(table.name.encode(), txn=txn)
            self._write_about(txn, _FORMAT, [FORMAT_NAME, FORMAT_VERSION, os.urandom(8).hex()])

    def _read_about(self, key: bytes) -> list[Any] | None:
        sealed = self.reader.get(key, None, self._about)
        if sealed is None:
            return None
        about: list[Any] = msgpack.unpackb(CHECKSUMS.unseal(Table.META, key, sealed))
        return about

    def _write_about(self, txn: Any, key: bytes, about: Sequence[Any]) -> None:
        txn.put(key, CHECKSUMS.seal(Table.META, key, msgpack.packb(about)), db=self._about)

    def _check_format(self, about: list[Any] | None) -> tuple[int, str]:
        if about is None or about[0] != FORMAT_NAME:
            raise self._foreign()
        if not FORMAT_VERSION_MIN <= about[1] <= FORMAT_VERSION:
            raise StoreCorrupt(
                f"the store in {self.directory} has format {about[1]}, and this program knows {FORMAT_VERSION}: "
                f"start it with the {'newer' if about[1] > FORMAT_VERSION else 'older'} program that wrote it"
            )
        return int(about[1]), str(about[2])

    def _foreign(self) -> StoreCorrupt:
        return StoreCorrupt(
            f"{self.directory} holds an LMDB file that is not a store: give the node its own data directory"
        )
