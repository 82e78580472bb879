"""Writes the events of one revision to the tables (M1, M2).

Everything that may be refused is refused before the first event is written (`txn.py`), so that a revision is complete
or does not exist. Reads between two events of the same revision see the first one: the tables are written at once, and
the block of the events follows when the revision is closed.
"""

from __future__ import annotations

from palisade.base.digest import leaf_of
from palisade.base.invariant import InvariantViolated
from palisade.base.key_text import key_text
from palisade.metastore.changes import EntryChanges
from palisade.metastore.digest import BucketSums
from palisade.metastore.history import History
from palisade.metastore.lease import LeaseBook
from palisade.metastore.ordered_map import OrderedMap, Table
from palisade.metastore.record import JUMP_ROWS, LINK_BYTES, StoredRow, cost_of, pack_row, unpack_row
from palisade.metastore.state import StoreState

NO_LEAF = 0


class RevisionWriter:
    """Reused for every revision: `put` and `delete` any number of keys, each once, then `close`."""

    __slots__ = ("_bodies", "_buckets", "_changes", "_history", "_leases", "_state", "_tables")

    def __init__(
        self,
        tables: OrderedMap,
        state: StoreState,
        history: History,
        buckets: BucketSums,
        leases: LeaseBook,
        changes: EntryChanges,
    ) -> None:
        """`changes` collects the writes, for watches and listeners."""
        self._tables = tables
        self._state = state
        self._history = history
        self._buckets = buckets
        self._leases = leases
        self._changes = changes
        self._bodies: list[bytes] = []

    @property
    def revision(self) -> int:
        """The revision that an operation sees: the next one once there is an event (etcd's header)."""
        return self._state.revision + (1 if self._history.next_sub else 0)

    @property
    def dirty(self) -> bool:
        return self._history.next_sub > 0

    def exists(self, key: bytes) -> bool:
        packed = self._tables.get(Table.KEY, key)
        return packed is not None and unpack_row(packed).version > 0

    def put(self, key: bytes, value: bytes, lease: int) -> None:
        packed, old = self._latest(key)
        revision = self._state.revision + 1
        live = old is not None and old.version > 0
        create, version = (old.create_revision, old.version + 1) if old and live else (revision, 1)
        self._state.keys += not live
        self._state.size += cost_of(key, value)
        self._write(StoredRow(*self._link(old), revision, create, version, lease, key, value), packed, old)

    def delete(self, key: bytes) -> None:
        """Of a live key: a tombstone replaces it."""
        packed, old = self._latest(key)
        if old is None or not old.version:
            raise InvariantViolated(f"the key {key_text(key)} is deleted though it does not exist")
        self._state.keys -= 1
        self._write(StoredRow(*self._link(old), self._state.revision + 1, 0, 0, 0, key, b""), packed, old)

    def _latest(self, key: bytes) -> tuple[bytes, StoredRow | None]:
        """The row in stored and in decoded form. A tombstone counts until MM has passed it, removed or not."""
        packed = self._tables.get(Table.KEY, key)
        if packed is None:
            return b"", None
        old = unpack_row(packed)
        if not old.version and old.mod_revision < self._state.compacted:
            return b"", None
        revision = self._state.revision + 1
        if old.mod_revision >= revision:
            raise InvariantViolated(f"the key {key_text(key)} is written twice in revision {revision}")
        return packed, old

    def _link(self, old: StoredRow | None) -> tuple[int, int, int, int]:
        """Sub and jump of the row that follows `old`. Rows below MM are dropped from the links: they are never read."""
        sub = self._history.next_sub
        if old is None or old.mod_revision < self._state.compacted:
            return sub, 0, 0, 0
        if old.since == JUMP_ROWS - 1:
            return sub, old.mod_revision, old.sub, 0
        return sub, old.jump, old.jump_sub, old.since + 1

    def _write(self, row: StoredRow, replaced: bytes, old: StoredRow | None) -> None:
        packed = pack_row(row)
        self._history.add(packed, replaced)
        self._tables.put(Table.KEY, row.key, packed)
        old_leaf = leaf_of(replaced[LINK_BYTES:]) if old and old.version else NO_LEAF
        body = packed[LINK_BYTES:]
        self._buckets.replace(row.key, old_leaf, leaf_of(body) if row.version else NO_LEAF)
        self._leases.move(row.key, old.lease if old else 0, row.lease)
        self._changes.keys.append(row.key)
        self._bodies.append(body)

    def close(self) -> int:
        """The revision of the store afterwards: unchanged if nothing was written."""
        self._history.close()
        if self._bodies:
            self._changes.runs.append((self._state.revision, self._bodies, False))
            self._bodies = []
        return self._state.revision
