"""A snapshot of the file: a separate read transaction, for a bounded time.

While it is open, LMDB cannot reuse the pages that later flushes free, so the file grows. A snapshot that has made it
grow too far is abandoned, and the receiver starts over with a new one.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

from palisade.base import long_keys
from palisade.base.snapshots import SnapshotGone, SnapshotMeta
from palisade.metastore.lmdb_file import LmdbFile
from palisade.metastore.ordered_map import Table
from palisade.metastore.snapshot import Row, StoreSnapshotReader

GROWTH_BYTES_MIN = 1 << 30


def open_source(
    file: LmdbFile, applied: tuple[int, int], growth_bytes_min: int = GROWTH_BYTES_MIN
) -> StoreSnapshotReader:
    """The state of the last commit, whose applied record is `applied`."""
    txn = file.env.begin()
    epoch, used = file.epoch, file.used_bytes()
    growth_max = max(growth_bytes_min, used)
    index, term = applied
    state = blake2b(f"{file.name} {txn.id()}".encode(), digest_size=8).hexdigest()
    meta = SnapshotMeta(f"{index}-{term}-{state}", index, term, file.content_bytes())

    def rows_from(table: Table, start: bytes) -> Iterator[Row]:
        for stored, value in file.stored_items(txn, table, start, None):
            key, value = long_keys.split(value) if long_keys.is_long(stored) else (stored, value)
            yield stored, key, value

    def check_alive() -> None:
        if file.epoch != epoch:
            raise SnapshotGone(f"the file of the snapshot {meta.id} was replaced or has grown: open a new one")
        if file.used_bytes() - used > growth_max:
            txn.abort()
            raise SnapshotGone(
                f"the snapshot {meta.id} was open while the file grew by {growth_max >> 20} MiB: open a new one"
            )

    def close() -> None:
        if file.epoch == epoch:
            txn.abort()

    return StoreSnapshotReader(meta, rows_from, check_alive, close)
