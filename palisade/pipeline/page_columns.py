"""The columns of a page of `wire.scan_pages`, without a Python object per row. Pure.

One loop finds the beginning of each row; everything else is computed for the whole page. The parts of all rows
(header, key, value) follow each other without gaps, so their boundaries are the offsets of an Arrow array over the page
itself, and a column of keys or values is every n-th element of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct, error
from typing import Any

import numpy as np
import pyarrow as pa

from palisade.vault.change import HEADER, KEY_BYTES_AT
from palisade.wire.scan_pages import CHANGE, BadPage

Numbers = Any
"""A numpy array of numbers."""
HEADERS = np.dtype(
    [
        ("mod", ">u8"),
        ("create", ">u8"),
        ("version", ">u8"),
        ("lease", ">u8"),
        ("key_bytes", ">u2"),
        ("value_bytes", ">u4"),
    ]
)
_CHANGE = np.dtype([("wall_ms", ">u8"), ("sub", ">u4"), ("replaces", "?")])
_SIZES = Struct(">HI")
"""Of key and value, the end of a header."""
ROW_PARTS, CHANGE_PARTS = (
    ("header", "key", "value"),
    ("change", "header", "key", "value", "old header", "old key", "old"),
)


class RowColumns:
    """Of n rows. A column is made when it is accessed: `keys` and `values` are arrays of bytes, the others numbers of
    64 bits. `headers`: records of `HEADERS`; `names`: of the parts of one row. The value is null where `live` is
    False."""

    def __init__(self, headers: Numbers, parts: pa.Array, names: Sequence[str], live: Numbers | None = None) -> None:
        self._headers, self.parts, self._names, self._live = headers, parts, names, live

    def __len__(self) -> int:
        return len(self._headers)

    @property
    def keys(self) -> pa.Array:
        return _every(self.parts, self._names, "key")

    @property
    def values(self) -> pa.Array:
        return _every(self.parts, self._names, "value", self._live)

    @property
    def mod_revisions(self) -> Numbers:
        return self._headers["mod"].astype(np.int64)

    @property
    def create_revisions(self) -> Numbers:
        return self._headers["create"].astype(np.int64)

    @property
    def versions(self) -> Numbers:
        return self._headers["version"].astype(np.int64)

    @property
    def leases(self) -> Numbers:
        return self._headers["lease"].astype(np.int64)


@dataclass(frozen=True, slots=True)
class ChangeColumns:
    """Of n changes: the value of a delete is null, and so is `previous` where `replaced` is False: there was no live
    version."""

    rows: RowColumns
    change: Any
    replaced: Numbers

    @property
    def wall_ms(self) -> Numbers:
        return self.change["wall_ms"].astype(np.int64)

    @property
    def subs(self) -> Numbers:
        return self.change["sub"].astype(np.int64)

    @property
    def previous(self) -> pa.Array:
        return _every(self.rows.parts, CHANGE_PARTS, "old", self.replaced)


def row_columns(page: bytes) -> RowColumns:
    """Raises BadPage."""
    return rows_at(page, np.array(_starts_of_rows(page), np.int64))


def rows_at(page: bytes, starts: Numbers, *, tails: bool = False) -> RowColumns:
    """`starts`: where each row of the page begins. `tails`: after its value, a row has bytes that are no part of it."""
    headers = _records(page, starts, HEADERS)
    keys_at = starts + HEADER.size
    values_at = keys_at + headers["key_bytes"]
    if not tails:
        return RowColumns(headers, _parts(page, [starts, keys_at, values_at]), ROW_PARTS)
    tails_at = values_at + headers["value_bytes"]
    return RowColumns(headers, _parts(page, [starts, keys_at, values_at, tails_at]), (*ROW_PARTS, "tail"))


def change_columns(page: bytes) -> ChangeColumns:
    """Raises BadPage."""
    found, olds = _starts_of_changes(page)
    starts, old_starts = np.array(found, np.int64), np.array(olds, np.int64)
    change = _records(page, starts, _CHANGE)
    head = _records(page, starts + CHANGE.size, HEADERS)
    replaces = change["replaces"]
    old_head = np.zeros(len(starts), HEADERS)
    old_head[replaces] = _records(page, old_starts[replaces], HEADERS)
    keys_at = starts + CHANGE.size + HEADER.size
    old_keys_at = old_starts + np.where(replaces, HEADER.size, 0)
    parts = _parts(
        page,
        [
            starts, starts + CHANGE.size, keys_at, keys_at + head["key_bytes"],
            old_starts, old_keys_at, old_keys_at + old_head["key_bytes"],
        ],
    )  # fmt: skip
    rows = RowColumns(head, parts, CHANGE_PARTS, head["version"] != 0)
    return ChangeColumns(rows, change, old_head["version"] != 0)


def _starts_of_rows(page: bytes) -> list[int]:
    sizes, head, end = _SIZES.unpack_from, HEADER.size, len(page)
    starts, at = list[int](), 0
    try:
        while at < end:
            starts.append(at)
            key_bytes, value_bytes = sizes(page, at + KEY_BYTES_AT)
            at += head + key_bytes + value_bytes
    except error:
        raise _torn(page, at) from None
    if at != end:
        raise _torn(page, starts[-1])
    return starts


def _starts_of_changes(page: bytes) -> tuple[list[int], list[int]]:
    """Of each change, and of the row that it replaced; without one, the end of the change."""
    sizes, head, end = _SIZES.unpack_from, HEADER.size, len(page)
    flag_at, sizes_at, rest = CHANGE.size - 1, CHANGE.size + KEY_BYTES_AT, CHANGE.size + HEADER.size
    starts, olds, at = list[int](), list[int](), 0
    try:
        while at < end:
            starts.append(at)
            key_bytes, value_bytes = sizes(page, at + sizes_at)
            old = at + rest + key_bytes + value_bytes
            olds.append(old)
            if page[at + flag_at]:
                key_bytes, value_bytes = sizes(page, old + KEY_BYTES_AT)
                old += head + key_bytes + value_bytes
            at = old
    except error:
        raise _torn(page, at) from None
    if at != end:
        raise _torn(page, starts[-1])
    return starts, olds


def _torn(page: bytes, at: int) -> BadPage:
    return BadPage(f"a page of {len(page)} bytes ends within a row at {at}")


def _records(page: bytes, starts: Numbers, kind: np.dtype[Any]) -> Any:
    """The fixed parts that begin at `starts`."""
    if not len(starts):
        return np.empty(0, kind)
    bounds = np.empty(2 * len(starts), np.int32)
    bounds[::2], bounds[1::2] = starts, starts + kind.itemsize
    if bounds[-1] > len(page):
        raise _torn(page, int(starts[-1]))
    between = pa.BinaryArray.from_buffers(
        pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(page)]
    )
    return np.frombuffer(_every(between, ("record", "rest"), "record").buffers()[2], kind, len(starts))


def _parts(page: bytes, starts: Sequence[Numbers]) -> pa.Array:
    """Every part of every row, in the order of the page, without a copy."""
    bounds = np.empty(len(starts) * len(starts[0]) + 1, np.int32)
    for number, each in enumerate(starts):
        bounds[number : -1 : len(starts)] = each
    bounds[-1] = len(page)
    return pa.BinaryArray.from_buffers(pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(page)])


def _every(parts: pa.Array, names: Sequence[str], name: str, valid: Numbers | None = None) -> pa.Array:
    """One column; null where `valid` is False."""
    chosen = np.arange(names.index(name), len(parts), len(names), dtype=np.int64)
    return parts.take(pa.array(chosen, mask=None if valid is None else ~valid))
