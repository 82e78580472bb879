"""The events of one revision, on their way into the tables (M1, M2).

What may be refused is refused before the first event is written (`txn.py`), so that a revision is whole or not there.
Reads between two events of the same revision see the first one: the tables are written at once, and the trailer
with the chain digest follows when the revision is closed.
"""

from __future__ import annotations

from metastore.check import check
from metastore.digest import TIMES, BucketSums, next_chain
from metastore.lease import LeaseBook
from metastore.mvcc import record_at
from metastore.ordered_map import OrderedMap, Table
from metastore.record import (
    DELETE,
    HEADER,
    HISTORY_VALUE,
    META,
    NO_DIGEST,
    POINTER,
    PUT,
    REVISION,
    Meta,
    cost_of,
    key_hash,
    leaf_of,
    unpack_meta,
)
from metastore.state import State

SUB_MAX = (1 << 32) - 1


class RevisionWriter:
    """Used again for every revision: `put` and `delete` any number of keys, each once, then `close`."""

    __slots__ = ("_buckets", "_first", "_leases", "_leaves", "_state", "_tables", "changed")

    def __init__(
        self, tables: OrderedMap, state: State, buckets: BucketSums, leases: LeaseBook, changed: list[bytes]
    ) -> None:
        """`changed` collects every key that was written, for the watchers."""
        self._tables = tables
        self._state = state
        self._buckets = buckets
        self._leases = leases
        self._leaves: list[bytes] = []
        self._first = b""
        self.changed = changed

    @property
    def revision(self) -> int:
        """What an operation of this revision sees: the next one once there is an event (etcd's header)."""
        return self._state.revision + (1 if self._leaves else 0)

    @property
    def dirty(self) -> bool:
        return bool(self._leaves)

    def meta(self, key: bytes) -> Meta | None:
        """Of the live version; None for a key that does not exist."""
        packed = self._tables.get(Table.KEY, key)
        meta = unpack_meta(packed) if packed is not None else None
        return meta if meta is not None and meta.version else None

    def put(self, key: bytes, value: bytes, lease: int) -> None:
        old = self.meta(key)
        revision = self._state.revision + 1
        create, version = (old.create_revision, old.version + 1) if old else (revision, 1)
        cost = cost_of(key, value)
        self._state.size += cost
        self._supersede(key, old)
        leaf = self._append(PUT, key, value, create, version, lease, old)
        sub = len(self._leaves) - 1
        self._tables.put(Table.KEY, key, META.pack(revision, sub, create, version, lease, cost, leaf))
        self._buckets.replace(key, old.leaf if old else NO_DIGEST, leaf)
        self._leases.move(key, old.lease if old else 0, lease)

    def delete(self, key: bytes) -> None:
        """Of a live key: a tombstone takes its place."""
        old = self.meta(key)
        check(old is not None, f"the key {key!r} is deleted though it does not exist")
        if old is None:
            return
        self._supersede(key, old)
        self._append(DELETE, key, b"", 0, 0, 0, old)
        revision, sub = self._state.revision + 1, len(self._leaves) - 1
        self._tables.put(Table.KEY, key, META.pack(revision, sub, 0, 0, 0, 0, NO_DIGEST))
        self._buckets.replace(key, old.leaf, NO_DIGEST)
        self._leases.move(key, old.lease, 0)

    def _supersede(self, key: bytes, old: Meta | None) -> None:
        if old is None:
            self._state.keys += 1
            return
        revision = self._state.revision + 1
        check(old.mod_revision < revision, f"the key {key!r} is written twice in revision {revision}")
        entry = HISTORY_VALUE.pack(old.sub, revision, old.leaf)
        self._tables.put(Table.HISTORY, key_hash(key) + REVISION.pack(old.mod_revision), entry)
        self._state.garbage += old.cost

    def _append(
        self, kind: int, key: bytes, value: bytes, create: int, version: int, lease: int, old: Meta | None
    ) -> bytes:
        sub = len(self._leaves)
        check(sub <= SUB_MAX, f"revision {self._state.revision + 1} has more than {SUB_MAX} events")
        pointer = POINTER.pack(self._state.revision + 1, sub)
        previous = (old.mod_revision, old.sub) if old else (0, 0)
        body = HEADER.pack(kind, len(key), len(value), create, version, lease, *previous) + key + value
        leaf = leaf_of(pointer, body)
        self._tables.put(Table.REVISION, pointer, body)
        self._leaves.append(leaf)
        self._first = self._first or pointer
        self.changed.append(key)
        if kind == DELETE:
            self._state.keys -= 1
        return leaf

    def close(self) -> int:
        """The revision of the store after it: the same as before where nothing was written."""
        state = self._state
        if not self._leaves:
            return state.revision
        times = TIMES.pack(state.wall_ms, state.clock_ms, state.garbage, len(self._leaves))
        state.chain = next_chain(state.chain, times, b"".join(self._leaves))
        body = record_at(self._tables, self._first)
        self._tables.put(Table.REVISION, self._first, body + state.chain + times)
        state.revision += 1
        self._leaves.clear()
        self._first = b""
        return state.revision
