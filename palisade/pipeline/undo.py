"""The state at revision R from a later state and the changes in between. Pure.

The first change of a key after R names the version that it replaced: the version at R. Keys are undone in order, slice
by slice; later slices may be of later revisions, so their changes are added in between. The cost of a slice grows with
its changed keys, not with its rows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

from palisade.vault.change import HEADER
from palisade.vault.slices import NO_CHECKSUM
from palisade.wire.scan_pages import ScannedChange, ScannedRow


class Undo:
    """Add the changes after R in their order, then undo the slices in theirs."""

    def __init__(self) -> None:
        self._before: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []

    def add(self, changes: Iterable[ScannedChange]) -> None:
        for change in changes:
            key = change.row.key
            if key not in self._before:
                self._before[key] = row_of(change.previous) if change.previous else b""
                heappush(self._keys, key)

    def rows(
        self, keys: Sequence[bytes], rows: Sequence[bytes], until: bytes | None
    ) -> tuple[Sequence[bytes], Sequence[bytes]]:
        """The keys before `until` (None: all remaining ones) with their rows at R, from later rows in key order.
        Rows are those of a `VaultSlice`."""
        if not self._keys or (until is not None and self._keys[0] >= until):
            return keys, rows
        found_keys, found, at = list[bytes](), list[bytes](), 0
        while self._keys and (until is None or self._keys[0] < until):
            key = heappop(self._keys)
            here = bisect_left(keys, key, at)
            found_keys += keys[at:here]
            found += rows[at:here]
            if before := self._before.pop(key):
                found_keys.append(key)
                found.append(before)
            at = here + (here < len(keys) and keys[here] == key)
        found_keys += keys[at:]
        found += rows[at:]
        return found_keys, found


def row_of(row: ScannedRow) -> bytes:
    head = HEADER.pack(row.mod_revision, row.create_revision, row.version, row.lease, len(row.key), len(row.value))
    return head + row.key + row.value + NO_CHECKSUM
