"""Which version of a key is readable at a revision (M1).

Every look-up starts at KEY, which has the latest row of each key. Only a read at an older revision of a key that has
changed since continues to the events after that revision (`history.py`). The progress of compaction below MM does not
matter, because a tombstone reads as no key.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from palisade.base.invariant import InvariantViolated
from palisade.base.key_text import key_text
from palisade.metastore.errors import Compacted, FutureRevision
from palisade.metastore.history import History, is_tombstone
from palisade.metastore.ordered_map import OrderedMap, Table
from palisade.metastore.record import ROW, unpack_row
from palisade.metastore.requests import FROM_KEY
from palisade.metastore.results import KeyValue
from palisade.metastore.state import StoreState


class StoreView(NamedTuple):
    """The parts of the store that reads use."""

    tables: OrderedMap
    state: StoreState
    history: History


class Found(NamedTuple):
    """A live version; its value is extracted from the row only on demand."""

    key: bytes
    row: bytes
    mod_revision: int
    create_revision: int
    version: int
    lease: int

    @property
    def value(self) -> bytes:
        return unpack_row(self.row).value

    def as_key_value(self) -> KeyValue:
        return KeyValue(self.key, self.value, self.create_revision, self.mod_revision, self.version, self.lease)


def end_of(range_end: bytes) -> bytes | None:
    """The exclusive end of a scan; None: no upper bound."""
    return None if range_end == FROM_KEY else range_end


def read_revision(state: StoreState, revision: int) -> int | None:
    """None for the latest state. Raises Compacted and FutureRevision. Zero and negative mean the latest, as in etcd."""
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


def found_in(key: bytes, row: bytes) -> Found | None:
    """None for a tombstone or a missing row."""
    if not row:
        return None
    _, _, _, _, mod, create, version, lease, _, _ = ROW.unpack_from(row)
    return Found(key, row, mod, create, version, lease) if version else None


def find(view: StoreView, key: bytes, revision: int | None) -> Found | None:
    """One key; `revision` as returned by `read_revision`."""
    row = view.tables.get(Table.KEY, key)
    if row is None:
        return None
    return found_in(key, row if revision is None else view.history.version_at(row, revision))


def find_range(view: StoreView, key: bytes, range_end: bytes, revision: int | None) -> Iterator[Found]:
    """Every live version of [key, range_end) in key order."""
    if not range_end:
        found = find(view, key, revision)
        if found is not None:
            yield found
        return
    version_at = view.history.version_at
    for name, row in view.tables.scan(Table.KEY, key, end_of(range_end)):
        found = found_in(name, row if revision is None else version_at(row, revision))
        if found is not None:
            yield found


def count_live(tables: OrderedMap, key: bytes, range_end: bytes) -> int:
    """The number of live keys in [key, range_end)."""
    return sum(1 for _, row in tables.scan(Table.KEY, key, end_of(range_end)) if not is_tombstone(row))


def get(tables: OrderedMap, key: bytes) -> KeyValue | None:
    """The latest version of one key: the shortest path, for the most frequent read."""
    row = tables.get(Table.KEY, key)
    if row is None or is_tombstone(row):
        return None
    _, _, _, _, mod, create, version, lease, key_bytes, value_bytes = ROW.unpack_from(row)
    start = ROW.size + key_bytes
    if row[ROW.size : start] != key:
        raise InvariantViolated(f"the look-up of {key_text(key)} returned another key: restore this node")
    return KeyValue(key, row[start : start + value_bytes], create, mod, version, lease)
