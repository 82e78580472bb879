"""Which version of a key is readable at a revision (M1).

Every look-up starts at KEY, which has the latest version or tombstone of each key. Only a read in the past whose
key has changed since goes to HISTORY. Compaction may or may not have removed what is below MM already: nothing here
depends on it, because a superseded version carries the revision that ended it, and a tombstone reads as no key.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from metastore.check import check
from metastore.errors import Compacted, FutureRevision, StoreCorrupt
from metastore.ordered_map import OrderedMap, Table
from metastore.record import (
    HEADER,
    HISTORY_VALUE,
    META,
    POINTER,
    POINTER_BYTES,
    REVISION,
    key_hash,
    key_value_of,
    value_of,
)
from metastore.requests import FROM_KEY
from metastore.results import KeyValue
from metastore.state import State

CREATE = slice(POINTER_BYTES, POINTER_BYTES + REVISION.size)
NO_REVISION = bytes(REVISION.size)


class Found(NamedTuple):
    """A live version without its value, which is only read where somebody wants it."""

    key: bytes
    pointer: bytes
    mod_revision: int
    create_revision: int
    version: int
    lease: int


def end_of(range_end: bytes) -> bytes | None:
    """The exclusive end of a scan; None for every key from the start on."""
    return None if range_end == FROM_KEY else range_end


def read_revision(state: State, revision: int) -> int | None:
    """None for the latest state. Raises Compacted and FutureRevision. Zero and less mean the latest, as in etcd."""
    if revision <= 0:
        return None
    if revision > state.revision:
        raise FutureRevision(
            f"revision {revision} is a future revision: the store is at {state.revision}; use 0 for the latest state"
        )
    if revision < state.compacted:
        raise compacted(revision, state.compacted)
    return revision


def compacted(revision: int, minimal_revision: int) -> Compacted:
    return Compacted(
        f"revision {revision} has been compacted: the oldest that can still be read is {minimal_revision} (MM)",
        minimal_revision,
    )


def record_at(tables: OrderedMap, pointer: bytes) -> bytes:
    """The record of an event that must be there."""
    record = tables.get(Table.REVISION, pointer)
    if record is None:
        revision, sub = POINTER.unpack(pointer)
        raise StoreCorrupt(f"event {revision}.{sub} is missing in the store: restore this node from another replica")
    return record


def latest(key: bytes, meta: bytes) -> Found | None:
    mod, _, create, version, lease, _, _ = META.unpack(meta)
    return Found(key, meta[:POINTER_BYTES], mod, create, version, lease) if version else None


def version_at(tables: OrderedMap, key: bytes, meta: bytes, revision: int) -> Found | None:
    """The version of `key` that was live at `revision`; `meta` is that of its latest one."""
    if REVISION.unpack_from(meta)[0] <= revision:
        return latest(key, meta)
    prefix = key_hash(key)
    entries = tables.scan(Table.HISTORY, prefix, prefix + REVISION.pack(revision + 1), reverse=True)
    newest = next(entries, None)
    if newest is None:
        return None
    sub, end, _ = HISTORY_VALUE.unpack(newest[1])
    if end <= revision:
        return None
    (mod,) = REVISION.unpack(newest[0][len(prefix) :])
    pointer = POINTER.pack(mod, sub)
    _, _, _, create, version, lease, _, _ = HEADER.unpack_from(record_at(tables, pointer))
    return Found(key, pointer, mod, create, version, lease)


def find(tables: OrderedMap, key: bytes, revision: int | None) -> Found | None:
    """One key; `revision` as `read_revision` gives it."""
    meta = tables.get(Table.KEY, key)
    if meta is None:
        return None
    return latest(key, meta) if revision is None else version_at(tables, key, meta, revision)


def find_range(tables: OrderedMap, key: bytes, range_end: bytes, revision: int | None) -> Iterator[Found]:
    """Every live version of [key, range_end) in the order of the keys."""
    if not range_end:
        found = find(tables, key, revision)
        if found is not None:
            yield found
        return
    for name, meta in tables.scan(Table.KEY, key, end_of(range_end)):
        found = latest(name, meta) if revision is None else version_at(tables, name, meta, revision)
        if found is not None:
            yield found


def count_live(tables: OrderedMap, key: bytes, range_end: bytes) -> int:
    """How many keys of [key, range_end) exist now."""
    return sum(1 for _, meta in tables.scan(Table.KEY, key, end_of(range_end)) if meta[CREATE] != NO_REVISION)


def value_of_found(tables: OrderedMap, found: Found) -> bytes:
    return value_of(record_at(tables, found.pointer))


def load(tables: OrderedMap, found: Found) -> KeyValue:
    """The version with its value."""
    value = value_of(record_at(tables, found.pointer))
    return KeyValue(found.key, value, found.create_revision, found.mod_revision, found.version, found.lease)


def get(tables: OrderedMap, key: bytes) -> KeyValue | None:
    """The latest version of one key: the shortest way, for the many reads that want just this."""
    meta = tables.get(Table.KEY, key)
    if meta is None or meta[CREATE] == NO_REVISION:
        return None
    found = key_value_of(record_at(tables, meta[:POINTER_BYTES]), REVISION.unpack_from(meta)[0])
    check(found.key == key, f"the store answers {found.key!r} for the key {key!r}: restore this node")
    return found
