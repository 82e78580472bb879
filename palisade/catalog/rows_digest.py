"""The digest over the rows of a segment: equal for equal rows, whatever program wrote the file. Pure.

It does not depend on the order of rows or columns, the compression, row groups, encodings, or the widths of numbers.
The order of rows does not count because distributed writers do not keep it; duplicates count. Columns count by name and
type, and texts by code points.

Another program computes it as follows ("+" joins bytes; numbers are decimal ASCII without leading zeros or "+"):

    field(b)  = length of b in bytes + ":" + b
    value     = "~" without a value, else field(text of the value)
    text      string     UTF-8
              int        the number
              double     16 lower-case hex digits of the IEEE 754 binary64, most significant first; -0.0 is 0.0, and
                         every NaN 7ff8000000000000
              boolean    0 or 1
              timestamp  nanoseconds since 1970-01-01T00:00:00Z; a time without zone counts as UTC
              date       days since 1970-01-01
              decimal    such as -12.05: no exponent, no zeros at the end of a fraction, no point without a fraction
              binary     the bytes
    row       = its values in the order of the columns' names (by their UTF-8 bytes)
    header    = "palisade rows 1\\n", then for each column in this order field(name) + field(type), then "\\n"
    digest    = "rows-sha256:" + hex of SHA-256(header + the SHA-256 of every row, sorted, duplicates repeated)

The size of a segment (`size_bytes` of its record) is the sum of the lengths of its rows in this form.
"""

from __future__ import annotations

import enum
import hashlib
import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from operator import itemgetter

from palisade.base.counted import counted
from palisade.catalog.errors import BadRows

METHOD = "rows-sha256"
HEADER = b"palisade rows 1\n"
NO_VALUE = b"~"
HASH_BYTES = 32
DAY_NS = 86_400_000_000_000

Value = str | int | float | bool | bytes | Decimal | None


class ColumnType(enum.Enum):
    """What a value is in Python: `TIMESTAMP` an int of nanoseconds, `DATE` of days, since 1970 in UTC."""

    STRING = "string"
    INT = "int"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"
    DATE = "date"
    DECIMAL = "decimal"
    BINARY = "binary"

    def form(self, value: Value) -> bytes:
        """The canonical form of one value. `value` must be of this type."""
        return NO_VALUE if value is None else field(TEXTS[self](value))


def field(content: bytes) -> bytes:
    return b"%d:%b" % (len(content), content)


def _of_double(value: float) -> bytes:
    return b"7ff8000000000000" if math.isnan(value) else struct.pack(">d", value or 0.0).hex().encode()


def _of_decimal(value: Decimal) -> bytes:
    text = format(value, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return b"0" if text == "-0" else text.encode()


TEXTS: Mapping[ColumnType, Callable[..., bytes]] = {
    ColumnType.STRING: str.encode,
    ColumnType.INT: b"%d".__mod__,
    ColumnType.DOUBLE: _of_double,
    ColumnType.BOOLEAN: b"%d".__mod__,
    ColumnType.TIMESTAMP: b"%d".__mod__,
    ColumnType.DATE: b"%d".__mod__,
    ColumnType.DECIMAL: _of_decimal,
    ColumnType.BINARY: bytes,
}


def column_order(names: Sequence[str]) -> list[int]:
    """The places of the columns in the order of their names. Raises BadRows: a name twice, or no column."""
    if not names:
        raise BadRows("the rows have no columns")
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise BadRows(f"column {', '.join(twice)[:80]} occurs twice: rename it")
    return sorted(range(len(names)), key=lambda place: names[place].encode())


class RowsDigest:
    """Accumulates rows, in any order. `rows`: their number, `size_bytes`: their length in the canonical form."""

    def __init__(self, columns: Sequence[tuple[str, ColumnType]]) -> None:
        """`columns`: name and type, in the order of the rows. Raises BadRows."""
        self.rows = 0
        self.size_bytes = 0
        self._order = column_order([name for name, _ in columns])
        self._types = [kind for _, kind in columns]
        self._ordered: Callable[[Sequence[bytes]], Iterable[bytes]] = itemgetter(*self._order) if columns[1:] else tuple
        fields = (field(columns[place][0].encode()) + field(columns[place][1].value.encode()) for place in self._order)
        self._header = HEADER + b"".join(fields) + b"\n"
        self._hashes = bytearray()

    def add(self, row: Sequence[Value]) -> None:
        """One row, its values in the order of `columns`."""
        if len(row) != len(self._types):
            raise BadRows(f"a row has {counted(len(row), 'value')} instead of {len(self._types)}")
        self.add_row_of_forms([kind.form(value) for kind, value in zip(self._types, row, strict=True)])

    def add_row_of_forms(self, forms: Sequence[bytes]) -> None:
        """As `add`, with the canonical forms of the values."""
        row = b"".join(self._ordered(forms))
        self._hashes += hashlib.sha256(row).digest()
        self.size_bytes += len(row)
        self.rows += 1

    def add_forms(self, columns: Sequence[Iterable[bytes]]) -> None:
        """Many rows: for each column, in the order of `columns`, the canonical forms of its values."""
        sha256 = hashlib.sha256
        for row in map(b"".join, zip(*(columns[place] for place in self._order), strict=True)):
            self._hashes += sha256(row).digest()
            self.size_bytes += len(row)
            self.rows += 1

    def digest(self, in_order: Callable[[bytes], bytes] | None = None) -> str:
        """`in_order`: sorts hashes of HASH_BYTES each that stand one after the other."""
        hashes = (in_order or sorted_hashes)(bytes(self._hashes))
        return f"{METHOD}:{hashlib.sha256(self._header + hashes).hexdigest()}"


def sorted_hashes(hashes: bytes) -> bytes:
    return b"".join(sorted(hashes[at : at + HASH_BYTES] for at in range(0, len(hashes), HASH_BYTES)))
