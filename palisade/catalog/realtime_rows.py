"""Rows of a realtime segment as its ingester receives and stores them: JSON lists, checked against the columns. Pure.

A row is a list of values in the order of the columns, or an object by their names. Times are texts in ISO 8601 (without
a zone: UTC), binary values hex digits. A row that does not fit is refused with its number, and nothing is stored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from palisade.base.counted import counted
from palisade.catalog.errors import BadField, BadRows
from palisade.catalog.row_format import shown, text_up_to
from palisade.catalog.rows_digest import ColumnType, Value

ROWS_MAX = 1_000_000
BYTES_MAX = 32 << 20
"""Of one realtime segment, in the form of `rows_digest`: below the limits of a file, so that it can be published."""
BATCH_ROWS_MAX = 10_000
ROW_BYTES_MAX = 256 << 10
COLUMNS_MAX = 1_000
NAME_CHARACTERS_MAX = 128
NO_DECIMALS = [each for each in ColumnType if each is not ColumnType.DECIMAL]
EPOCH, EPOCH_DAY = datetime(1970, 1, 1, tzinfo=UTC), date(1970, 1, 1)
MICROSECOND = timedelta(microseconds=1)

Columns = tuple[tuple[str, ColumnType], ...]


def columns_from(given: Any) -> Columns:
    """Of an object such as {"id": "int", "at": "timestamp"}. Raises BadField."""
    if not isinstance(given, Mapping) or not 1 <= len(given) <= COLUMNS_MAX:
        raise BadField(f"columns: {shown(given)} is not an object of 1 to {COLUMNS_MAX} names and types")
    known = {each.value: each for each in NO_DECIMALS}
    for name, kind in given.items():
        text_up_to(NAME_CHARACTERS_MAX, 1)(name, "columns")
        if type(kind) is not str or kind not in known:
            raise BadField(f"columns.{name}: {shown(kind)} is not one of {', '.join(known)}")
    return tuple((name, known[kind]) for name, kind in given.items())


def columns_shape(columns: Columns) -> dict[str, str]:
    return {name: kind.value for name, kind in columns}


def encoded(columns: Columns, rows: Any) -> tuple[list[bytes], int]:
    """The rows as they are stored, and their size in the form of `rows_digest`. Raises BadRows."""
    if type(rows) is not list or not 1 <= len(rows) <= BATCH_ROWS_MAX:
        raise BadRows(f"rows: {shown(rows)} is not a list of 1 to {BATCH_ROWS_MAX} rows")
    found, size_bytes = [], 0
    for number, row in enumerate(rows):
        try:
            values, size = checked_row(columns, row)
        except UnfitRow as error:
            raise BadRows(f"row {number}: {error}; nothing was stored") from None
        size_bytes += size
        found.append(_packed(columns, values))
    return found, size_bytes


class UnfitRow(ValueError):
    """A row does not fit the columns of its segment. The text is the reason, without the number of the row."""


def checked_row(columns: Columns, row: Any) -> tuple[list[Value], int]:
    """The values of a row, and their size in the form of `rows_digest`. Raises UnfitRow."""
    values = _values(columns, row)
    size = size_of(columns, values)
    if size > ROW_BYTES_MAX:
        raise UnfitRow(f"the encoded row has {size} bytes, the limit is {ROW_BYTES_MAX}")
    return values, size


def decoded(columns: Columns, entry: bytes) -> list[Value]:
    values = json.loads(entry)
    return [
        bytes.fromhex(value) if kind is ColumnType.BINARY and value is not None else value
        for (_, kind), value in zip(columns, values, strict=True)
    ]


def size_of(columns: Columns, values: Sequence[Value]) -> int:
    return sum(len(kind.form(value)) for (_, kind), value in zip(columns, values, strict=True))


def _packed(columns: Columns, values: Sequence[Value]) -> bytes:
    plain = [value.hex() if isinstance(value, bytes) else value for value in values]
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=False).encode()


def _values(columns: Columns, row: Any) -> list[Value]:
    """Raises UnfitRow."""
    if isinstance(row, Mapping):
        names = {name for name, _ in columns}
        if unknown := row.keys() - names:
            raise UnfitRow(f"there is no column {shown(min(map(str, unknown)))}")
        row = [row.get(name) for name, _ in columns]
    if type(row) is not list or len(row) != len(columns):
        raise UnfitRow(f"expected {counted(len(columns), 'value')}, got {shown(row)}")
    found: list[Value] = []
    for (name, kind), value in zip(columns, row, strict=True):
        try:
            found.append(None if value is None else READ[kind](value))
        except (TypeError, ValueError, OverflowError):
            raise UnfitRow(f"column {name}: {shown(value)} is not of type {kind.value}") from None
    return found


def _a_string(value: Any) -> str:
    if type(value) is not str:
        raise TypeError
    value.encode()
    return value


def _an_int(value: Any) -> int:
    if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
        raise TypeError
    return value


def _a_double(value: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError
    return float(value)


def _a_boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise TypeError
    return value


def _a_timestamp(value: Any) -> int:
    """Nanoseconds since 1970, in whole microseconds."""
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (moment - EPOCH) // MICROSECOND * 1_000


def _a_date(value: Any) -> int:
    found = value if type(value) is date else date.fromisoformat(value)
    return (found - EPOCH_DAY).days


def _bytes(value: Any) -> bytes:
    return value if type(value) is bytes else bytes.fromhex(value)


READ: Mapping[ColumnType, Callable[[Any], Value]] = {
    ColumnType.STRING: _a_string,
    ColumnType.INT: _an_int,
    ColumnType.DOUBLE: _a_double,
    ColumnType.BOOLEAN: _a_boolean,
    ColumnType.TIMESTAMP: _a_timestamp,
    ColumnType.DATE: _a_date,
    ColumnType.BINARY: _bytes,
}
