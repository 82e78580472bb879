"""The state at revision R from a later state and the changes in between. Pure.

The first change of a key after R names the version that it replaced: the version at R. Keys are undone in order, slice
by slice; later slices may be of later revisions, so their changes are added in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

from palisade.vault.change import HEADER, key_of
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
                self._before[key] = body_of(change.previous) if change.previous else b""
                heappush(self._keys, key)

    def rows(self, bodies: Sequence[bytes], until: bytes | None) -> Sequence[bytes]:
        """The rows at R of the keys before `until` (None: of all that are left), from the later ones in key order."""
        changed = dict[bytes, bytes]()
        while self._keys and (until is None or self._keys[0] < until):
            key = heappop(self._keys)
            changed[key] = self._before.pop(key)
        if not changed:
            return bodies
        rows = {key_of(body): body for body in bodies} | changed
        return [rows[key] for key in sorted(rows) if rows[key]]


def body_of(row: ScannedRow) -> bytes:
    head = HEADER.pack(row.mod_revision, row.create_revision, row.version, row.lease, len(row.key), len(row.value))
    return head + row.key + row.value
