"""What a snapshot of the vault shows for a given RR: the rules of fenced reads at one moment. Pure.

A key with a row above RR is pending: the old value must not be served, because other nodes may serve the change at any
moment, and the change must not be served yet. If a row is above LV and not above RR, the row is the value: it is
released and not applied yet. Otherwise the entry is the value: it includes everything up to LV. Thus all strict keys
are shown as of the later of LV and RR.

A range is answered as of one revision. Only strict changes are marked, so a range that also has keys of eventual
regions is shown as of LV, from the entries alone. If a key of it has a change above LV when the read begins, the read
first waits until LV is there: everything acknowledged before the read began is then among the entries.

A reader that found a key pending returns exactly that change once RR reaches it. At the moment of the snapshot nothing
later was released (it was not even staged here), so at that moment or at the release the change was the latest one.
Thus a key under constant writes remains readable.
"""

from __future__ import annotations

import enum
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, Protocol

from palisade.base.long_keys import in_order, stored_end, stored_key, stored_start
from palisade.vault.change import Item, VaultEvent, item_of, with_key
from palisade.vault.page_keys import TableTree, tree_of
from palisade.vault.position import unpack_position
from palisade.vault.record_check import CHECKSUMS
from palisade.vault.regions import REGIONS_END, REGIONS_PREFIX, Regions
from palisade.vault.staging import body_of, revision_of
from palisade.vault.tables import VaultTable

POSITION = b"position"
FIRST_CHUNK_ROWS, CHUNK_ROWS, CHUNK_BYTES = 32, 512, 1 << 17
ROWS_MAX = 1 << 62
"""No vault has more; a greater limit is no limit."""


class RowChunk(NamedTuple):
    """Rows in the order of their stored keys. `page`: their values one after the other, each with its checksum, which
    matches. `sizes`: the bytes of each value with its checksum."""

    keys: list[bytes]
    page: bytes
    sizes: array[int]


class Transaction(Protocol):
    """The used part of an LMDB read transaction; `db` is a handle."""

    def get(self, key: bytes, default: None, db: Any) -> bytes | None: ...

    def cursor(self, db: Any) -> Any: ...


class ReadOrigin(enum.StrEnum):
    """The source of an answer."""

    VAULT = "vault"
    QUORUM = "quorum"
    """The cluster was read, according to the policy of the region."""
    DEFAULT = "default"
    """The default of the region; the current value is unknown."""


@dataclass(frozen=True, slots=True)
class ShownPage:
    """The value of a key (None: no such key). Every strict change up to `revision` is included; 0: unknown."""

    item: Item | None
    revision: int
    origin: ReadOrigin = ReadOrigin.VAULT


@dataclass(frozen=True, slots=True)
class Unreleased:
    """`found` is the answer once RR reaches the revision."""

    revision: int
    found: Any


@dataclass(frozen=True, slots=True)
class Unapplied:
    """The range can be shown as of one revision once LV has reached `revision`."""

    revision: int


@dataclass(frozen=True, slots=True)
class Rows:
    """A range in key order: the state as of `revision`. `more`: the limit left out further keys."""

    revision: int
    items: tuple[Item, ...]
    more: bool = False
    origin: ReadOrigin = ReadOrigin.VAULT

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


class VaultSnapshot:
    """One read transaction. `tables`: handles by number, None for a missing table. Raises VaultDamaged."""

    def __init__(self, transaction: Transaction, tables: list[Any]) -> None:
        self._transaction = transaction
        self._tables = tables

    def get(self, table: VaultTable, key: bytes) -> bytes | None:
        handle = self._tables[table]
        sealed = None if handle is None else self._transaction.get(key, None, handle)
        return None if sealed is None else CHECKSUMS.unseal(table, key, sealed)

    def scan(self, table: VaultTable, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        handle = self._tables[table]
        if handle is None:
            return
        with self._transaction.cursor(handle) as cursor:
            for key, sealed in cursor.iternext() if cursor.set_range(start) else ():
                if end is not None and key >= end:
                    return
                yield key, CHECKSUMS.unseal(table, key, sealed)

    def chunks(self, table: VaultTable, start: bytes) -> Iterator[RowChunk]:
        """As `scan` to the end of the table, faster for many: some rows at a time, fewer if they are large."""
        handle = self._tables[table]
        if handle is None:
            return
        rows = FIRST_CHUNK_ROWS
        with self._transaction.cursor(handle) as cursor:
            every = cursor.iternext() if cursor.set_range(start) else iter(())
            while True:
                keys, values = list[bytes](), list[bytes]()
                for key, value in islice(every, rows):  # faster than two lists made of a list of pairs
                    keys.append(key)
                    values.append(value)
                if not keys:
                    return
                page = CHECKSUMS.verified(table, keys, values)
                yield RowChunk(keys, page, array("I", map(len, values)))
                rows = min(CHUNK_ROWS, max(1, CHUNK_BYTES * len(keys) // len(page)))

    def some_keys(self, table: VaultTable, start: bytes, stride: int) -> Iterator[bytes]:
        """One key in `stride` from `start` on, the first one included. No value is read, so nothing is verified."""
        handle = self._tables[table]
        if handle is None:
            return
        with self._transaction.cursor(handle) as cursor:
            if cursor.set_range(start):
                yield from islice(cursor.iternext(values=False), 0, None, stride)

    def tree(self, table: VaultTable) -> TableTree:
        """Only of an LMDB file. Raises UnknownPages."""
        return tree_of(self._transaction.get(table.name.encode(), None, None) or b"")

    @property
    def lv(self) -> int:
        return unpack_position(self.get(VaultTable.META, POSITION)).revision


def look_up(snapshot: VaultSnapshot, key: bytes, released: int) -> Item | Unreleased | None:
    """None: there is no such key."""
    stored = stored_key(key)
    row = snapshot.get(VaultTable.PENDING, stored)
    if row is not None:
        revision, body = revision_of(row), body_of(row)
        staged = None if body is None else item_of(body)
        if revision > released:
            return Unreleased(revision, staged)
        if revision > snapshot.lv:
            return staged
    entry = snapshot.get(VaultTable.ENTRY, stored)
    if entry is None:
        return None
    item = item_of(entry)
    return item if stored is key or item.key == key else None


@dataclass(frozen=True, slots=True)
class Opened:
    """A range as of a revision; its items are read on demand. It may be shown once RR has reached `needs` (0: now)."""

    revision: int
    items: Iterator[Item]
    needs: int


@dataclass(frozen=True, slots=True)
class RecentChanges:
    """Of a strict range: its state as of `revision` is that of `lv` and then `events`, which come later."""

    lv: int
    revision: int
    events: tuple[VaultEvent, ...]
    needs: int
    """It may be shown once RR has reached this revision (0: now)."""


def recent_changes(snapshot: VaultSnapshot, start: bytes, end: bytes | None, released: int) -> RecentChanges:
    """Only for a range in which all keys are strict, and short enough to be stored as they are."""
    lv = snapshot.lv
    found = [
        VaultEvent(stored, revision_of(row), None if (body := body_of(row)) is None else item_of(body))
        for stored, row in snapshot.scan(VaultTable.PENDING, stored_start(start), stored_end(end))
    ]
    revisions = [event.mod_revision for event in found]
    needs = max((revision for revision in revisions if revision > released), default=0)
    events = tuple(event for event in found if event.mod_revision > lv)
    return RecentChanges(lv, max([lv, released, *revisions]), events, needs)


def open_range(
    snapshot: VaultSnapshot, start: bytes, end: bytes | None, released: int, applied: int = 0
) -> Opened | Unapplied:
    """`applied`: the revision that an earlier look of the same read had to wait for; 0: this is the first look."""
    lv = snapshot.lv
    marks = list(snapshot.scan(VaultTable.PENDING, stored_start(start), stored_end(end)))
    revisions = [revision_of(row) for _, row in marks]
    shown = max([lv, released, *revisions])
    if shown == lv or not regions_of(snapshot).all_strict(start, end):
        ahead = max(revisions, default=0)
        if ahead > lv and not 0 < applied <= lv:
            return Unapplied(applied or ahead)
        marks, revisions, shown = [], [revision for revision in revisions if revision <= lv], lv
    changed = {stored: body_of(row) for stored, row in marks if revision_of(row) > lv}
    rows = merged(snapshot.scan(VaultTable.ENTRY, stored_start(start), stored_end(end)), changed)
    items = (item_of(entry) for _, entry in in_order(rows, start, end, opened=with_key))
    return Opened(shown, items, max((revision for revision in revisions if revision > released), default=0))


def collect(opened: Opened, limit: int) -> Rows:
    """`limit` 0: all."""
    found = list(islice(opened.items, min(limit, ROWS_MAX) + 1 if limit else None))
    return limited(opened, found, limit)


def limited(opened: Opened, found: list[Item], limit: int) -> Rows:
    """`found`: all items, or one more than the limit."""
    more = bool(limit) and len(found) > limit
    return Rows(opened.revision, tuple(found[:limit] if more else found), more)


def merged(entries: Iterator[tuple[bytes, bytes]], changed: dict[bytes, bytes | None]) -> Iterator[tuple[bytes, bytes]]:
    """The entries, replaced by those of `changed` (None: deleted), in the order of the stored keys."""
    waiting = sorted(changed.items(), reverse=True)
    for stored, entry in entries:
        while waiting and waiting[-1][0] < stored:
            yield from _present(waiting.pop())
        if waiting and waiting[-1][0] == stored:
            yield from _present(waiting.pop())
        else:
            yield stored, entry
    while waiting:
        yield from _present(waiting.pop())


def _present(row: tuple[bytes, bytes | None]) -> Iterator[tuple[bytes, bytes]]:
    stored, body = row
    if body is not None:
        yield stored, body


def regions_of(snapshot: VaultSnapshot) -> Regions:
    """The regions in the vault: those of LV, replaced by staged ones."""
    rows = dict(snapshot.scan(VaultTable.ENTRY, REGIONS_PREFIX, REGIONS_END))
    for stored, row in snapshot.scan(VaultTable.PENDING, REGIONS_PREFIX, REGIONS_END):
        body = body_of(row)
        if body is None:
            rows.pop(stored, None)
        else:
            rows[stored] = body
    found = [item_of(entry) for entry in rows.values()]
    return Regions.of((item.key, item.value) for item in found)
