"""The pages of a scan: many versions or changes of keys in one byte string.

A JSON object per row costs the node more than reading it. Here a node joins rows as they are stored, and the reader
unpacks them in one loop.

    row       mod revision, create revision, version (0: deleted), lease, sizes of key and value; key, value
    change    wall clock in ms, number of the change within its revision, whether a row follows that it replaced;
              row, replaced row

Integers are big-endian. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct, error
from typing import NamedTuple

from palisade.metastore.lineage import Lineage
from palisade.vault.change import HEADER, KEY_BYTES_AT

CHANGE = Struct(">QI?")
VALUE_BYTES_AT = KEY_BYTES_AT + 2
NO_VALUE = bytes(HEADER.size - VALUE_BYTES_AT)


class BadPage(ValueError):
    """A page that no node sends: it ends within a row."""


class ScannedRow(NamedTuple):
    """A version of a key. A tombstone has version 0."""

    key: bytes
    value: bytes
    mod_revision: int
    create_revision: int
    version: int
    lease: int


class ScannedChange(NamedTuple):
    """`wall_ms`: the leader's wall clock. `sub` numbers the changes of one revision. `previous`: None for a new key."""

    row: ScannedRow
    wall_ms: int
    sub: int
    previous: ScannedRow | None


class ChangePosition(NamedTuple):
    """Of a change in the history."""

    revision: int
    sub: int = 0


class KeyCounts(NamedTuple):
    """Keys of a part of a range at `revision`: samples that are at most `stride` keys apart; and their number.

    `until`: where the next part begins; None at the end.
    """

    revision: int
    lineage: Lineage
    stride: int
    samples: list[bytes]
    keys: int
    until: bytes | None


def pack_rows(rows: Iterable[bytes]) -> bytes:
    """`rows` without their links, as of `metastore.change_feed`."""
    return b"".join(rows)


def pack_change(wall_ms: int, sub: int, row: bytes, replaced: bytes) -> bytes:
    """`row` and `replaced` without their links, as of `metastore.history`."""
    return CHANGE.pack(wall_ms, sub, bool(replaced)) + row + replaced


def without_value(row: bytes) -> bytes:
    """The row with an empty value; the other fields keep theirs. An absent row remains absent."""
    key_end = HEADER.size + int.from_bytes(row[KEY_BYTES_AT:VALUE_BYTES_AT], "big")
    return row and row[:VALUE_BYTES_AT] + NO_VALUE + row[HEADER.size : key_end]


def change_bytes(row: bytes, replaced: bytes) -> int:
    """The length of `pack_change`."""
    return CHANGE.size + len(row) + len(replaced)


def rows_of(page: bytes) -> Iterator[ScannedRow]:
    """The rows of a page of `scan_rows`. Raises BadPage."""
    unpack, head, at, end = HEADER.unpack_from, HEADER.size, 0, len(page)
    while at < end:
        try:
            mod, create, version, lease, key_bytes, value_bytes = unpack(page, at)
        except error:
            raise BadPage(f"a page of {end} bytes ends within a row at {at}") from None
        middle = at + head + key_bytes
        stop = middle + value_bytes
        if stop > end:
            raise BadPage(f"a page of {end} bytes ends within a row at {at}")
        yield ScannedRow(page[at + head : middle], page[middle:stop], mod, create, version, lease)
        at = stop


def changes_of(page: bytes) -> Iterator[ScannedChange]:
    """Raises BadPage."""
    at, end = 0, len(page)
    while at < end:
        try:
            wall_ms, sub, replaces = CHANGE.unpack_from(page, at)
        except error:
            raise BadPage(f"a page of {end} bytes ends within a change at {at}") from None
        row, at = _row_at(page, at + CHANGE.size)
        previous = None
        if replaces:
            previous, at = _row_at(page, at)
        yield ScannedChange(row, wall_ms, sub, previous if previous and previous.version else None)


def _row_at(page: bytes, at: int) -> tuple[ScannedRow, int]:
    try:
        mod, create, version, lease, key_bytes, value_bytes = HEADER.unpack_from(page, at)
    except error:
        raise BadPage(f"a page of {len(page)} bytes ends within a row at {at}") from None
    middle = at + HEADER.size + key_bytes
    stop = middle + value_bytes
    if stop > len(page):
        raise BadPage(f"a page of {len(page)} bytes ends within a row at {at}")
    return ScannedRow(page[at + HEADER.size : middle], page[middle:stop], mod, create, version, lease), stop
