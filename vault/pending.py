"""Staged changes that are not applied: a row per key, with its latest staged version (issue 4, F5). Pure.

A row means: this key has a change at this revision. The old value must not be served once the change is released, and
the change must not be served before. Readers find the row in the same snapshot as the entry. A row is superseded once
the vault has applied its revision *and* the revision is released; the commit that moves LV removes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import NamedTuple

from palisade.base.long_keys import PREFIX_BYTES, stored_key
from palisade.vault.change import HEADER, HEADER_BYTES, is_body, item_of
from palisade.vault.errors import RESET, VaultDamaged, VaultDiverged

REVISION_BYTES = 8
_BY_REVISION = itemgetter(0)

Row = tuple[int, bytes, bytes | None]
"""Used instead of `StagedChange` on the hot path: the tuples as they arrive from the wire."""


class StagedChange(NamedTuple):
    """A change of a key at a revision. `body`: the version (`change.py`); None: the key is deleted."""

    revision: int
    key: bytes
    body: bytes | None


def pack_all(rows: Mapping[bytes, Row]) -> dict[bytes, bytes]:
    """Keyed by stored key."""
    return {stored: row[0].to_bytes(REVISION_BYTES, "big") + (row[2] or b"") for stored, row in rows.items()}


def revision_of(packed: bytes) -> int:
    return int.from_bytes(packed[:REVISION_BYTES], "big")


def body_of(packed: bytes) -> bytes | None:
    return packed[REVISION_BYTES:] or None


def check_staged(rows: Iterable[Row]) -> None:
    """Raises VaultDiverged unless each row is well-formed: a body of its key and revision."""
    unpack = HEADER.unpack_from
    for revision, key, body in rows:
        if body is not None and len(body) >= HEADER_BYTES:
            mod, _, version, _, key_bytes, value_bytes = unpack(body)
            end = HEADER_BYTES + key_bytes
            fits = version and mod == revision and len(body) == end + value_bytes and body[HEADER_BYTES:end] == key
        else:
            fits = body is None
        if not fits or revision <= 0 or not key:
            raise VaultDiverged(
                f"the staged change of {key[:64]!r} at revision {revision} is malformed: request it again"
            )


def check_pending(stored: bytes, packed: bytes) -> None:
    """Raises VaultDamaged unless the row belongs to that key."""
    if 0 < len(packed) - REVISION_BYTES < HEADER_BYTES or len(packed) < REVISION_BYTES or not revision_of(packed):
        raise _damaged(stored)
    body = body_of(packed)
    if body is None:
        return
    item = item_of(body) if is_body(body) else None
    if item is None or stored_key(item.key) != stored or item.mod_revision != revision_of(packed):
        raise _damaged(stored)


def _damaged(stored: bytes) -> VaultDamaged:
    return VaultDamaged(f"the pending row of {stored[:64]!r} in the vault is damaged: {RESET}")


class PendingKeys:
    """The revisions of the rows, in memory, in order of revision."""

    def __init__(self, rows: Iterable[tuple[bytes, int]] = ()) -> None:
        """(stored key, revision)."""
        self._rows: dict[bytes, int] = dict(sorted(rows, key=lambda row: row[1]))

    def __len__(self) -> int:
        return len(self._rows)

    def revision_of(self, key: bytes) -> int | None:
        """Of the latest staged change of the key; None: no row."""
        return self._rows.get(stored_key(key))

    @property
    def latest(self) -> int:
        """The highest revision with a row; 0: none."""
        return next(reversed(self._rows.values()), 0)

    def first_after(self, revision: int) -> int | None:
        """The lowest revision above `revision` with a row."""
        return next((number for number in self._rows.values() if number > revision), None)

    def upto(self, revision: int) -> list[bytes]:
        """The stored keys of the rows at or below `revision`."""
        found: list[bytes] = []
        for stored, number in self._rows.items():
            if number > revision:
                break
            found.append(stored)
        return found

    def newer(self, rows: Iterable[Row], above: int = 0) -> dict[bytes, Row]:
        """The rows that are new at a revision above `above`, the latest of each key, by stored key, in order of
        revision."""
        found: dict[bytes, Row] = {}
        known = self._rows.get
        for row in sorted(rows, key=_BY_REVISION):
            revision, key, _ = row
            stored = key if len(key) <= PREFIX_BYTES else stored_key(key)
            if revision > above and revision > known(stored, 0):
                found.pop(stored, None)
                found[stored] = row
        return found

    def add(self, rows: dict[bytes, Row]) -> None:
        """Add the result of `newer` once it is committed."""
        ordered = next(iter(rows.values()))[0] >= self.latest if rows else True
        known = self._rows
        for stored, row in rows.items():
            if stored in known:
                del known[stored]
            known[stored] = row[0]
        if not ordered:
            self._rows = dict(sorted(self._rows.items(), key=lambda item: item[1]))

    def remove(self, stored_keys: Iterable[bytes]) -> None:
        for stored in stored_keys:
            self._rows.pop(stored, None)
