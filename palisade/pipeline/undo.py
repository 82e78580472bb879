"""The state at revision R from a later state and the changes in between. Pure.

The first change of a key after R names the version that it replaced: the version at R. Keys are undone in order, slice
by slice; later slices may be of later revisions, so their changes are added in between. The rows between changed keys
are copied and not looked at.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import accumulate

from palisade.vault.change import HEADER, key_of
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

    def rows(self, page: bytes, sizes: array[int], until: bytes | None) -> tuple[bytes, array[int]]:
        """The rows at R of the keys before `until` (None: all remaining ones), from later rows in key order. Both are
        in the form of a `VaultSlice`: a page and the sizes of its rows."""
        if not self._keys or (until is not None and self._keys[0] >= until):
            return page, sizes
        starts = list(accumulate(sizes, initial=0))

        def key_at(number: int) -> bytes:
            return key_of(page[starts[number] : starts[number + 1]])

        pieces, found, at = list[bytes](), array("I"), 0
        while self._keys and (until is None or self._keys[0] < until):
            key = heappop(self._keys)
            here = bisect_left(range(len(sizes)), key, at, key=key_at)
            pieces.append(page[starts[at] : starts[here]])
            found += sizes[at:here]
            if before := self._before.pop(key):
                pieces.append(before)
                found.append(len(before))
            at = here + (here < len(sizes) and key_at(here) == key)
        pieces.append(page[starts[at] :])
        found += sizes[at:]
        return b"".join(pieces), found


def row_of(row: ScannedRow) -> bytes:
    head = HEADER.pack(row.mod_revision, row.create_revision, row.version, row.lease, len(row.key), len(row.value))
    return head + row.key + row.value + NO_CHECKSUM
