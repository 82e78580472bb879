"""The content of a segment: rows as Parquet, read and verified with pyarrow. Pure, apart from the time that it takes.

Guarantees, and why they hold:
- `inspect_segment` depends on the rows alone: the digest is over rows (`rows_digest.py`), and number, minimum and
  maximum are computed from them, never taken from the statistics in the file.
- A file that is damaged or incomplete is refused, or has other rows and so another digest.
- Memory is bounded for files of others: sizes are checked before decoding, repeated values are not expanded, and
  decoding stops at the limits.

Only imported where files are read or written: pyarrow is in `palisade[segments]`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from palisade.base.counted import counted
from palisade.catalog.errors import BadField, BadRows
from palisade.catalog.rows_digest import DAY_NS, HASH_BYTES, NO_VALUE, ColumnType, RowsDigest, Value
from palisade.catalog.segment import time_text

FILE_BYTES_MAX = 64 << 20
ROWS_MAX = 5_000_000
COLUMNS_MAX = 1_000
DECODED_BYTES_MAX = 512 << 20
"""Of the pages of a file without compression."""
BATCH_ROWS = 4_096
NS_OF_UNIT = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
ARROW_TYPES = {
    ColumnType.STRING: pa.string(),
    ColumnType.INT: pa.int64(),
    ColumnType.DOUBLE: pa.float64(),
    ColumnType.BOOLEAN: pa.bool_(),
    ColumnType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    ColumnType.DATE: pa.date32(),
    ColumnType.BINARY: pa.binary(),
}
UNREADABLE = (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError)
"""What pyarrow raises for damaged files."""
Columns = Sequence[tuple[str, ColumnType]]


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """`least`, `greatest`: values of JSON, None without any; NaN does not count."""

    name: str
    type: ColumnType
    nulls: int
    least: str | int | float | bool | None
    greatest: str | int | float | bool | None

    def as_dict(self) -> dict[str, Any]:
        shape = {"name": self.name, "type": self.type.value, "nulls": self.nulls}
        return {**shape, "min": self.least, "max": self.greatest}


@dataclass(frozen=True, slots=True)
class SegmentContent:
    """What the rows of a segment are. `rows`, `size_bytes` and `digest` are those of the segment's record."""

    rows: int
    size_bytes: int
    digest: str
    columns: tuple[ColumnStatistics, ...]


def parquet_of(table: pa.Table) -> bytes:
    """A file with these rows. Raises BadRows for a column of an unsupported type."""
    columns_of(table.schema)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True, store_schema=False)
    return bytes(sink.getvalue())


def table_of(columns: Columns, rows: Sequence[Sequence[Value]]) -> pa.Table:
    """Rows as a table. Timestamps are stored with microseconds. Raises BadRows."""
    fields = [pa.field(name, ARROW_TYPES[kind]) for name, kind in columns]
    try:
        arrays = [
            _array(kind, each.type, [row[place] for row in rows])
            for place, ((_, kind), each) in enumerate(zip(columns, fields, strict=True))
        ]
        return pa.Table.from_arrays(arrays, schema=pa.schema(fields))
    except (TypeError, IndexError, *UNREADABLE) as error:
        raise BadRows(f"a row has a value of another type than its column: {error}") from error


def _array(kind: ColumnType, arrow: pa.DataType, values: list[Value]) -> pa.Array:
    if kind is ColumnType.TIMESTAMP:
        return pa.array(values, pa.int64()).cast(pa.timestamp("ns", tz="UTC")).cast(arrow)
    if kind is ColumnType.DATE:
        return pa.array(values, pa.int32()).cast(arrow)
    return pa.array(values, arrow)


def inspect_segment(content: bytes) -> SegmentContent:
    """Decodes all rows of a Parquet file. Takes about 5 us per row of 20 columns. Raises BadRows."""
    return summarize(*_opened(content))


def inspect_table(table: pa.Table) -> SegmentContent:
    """As `inspect_segment`, of rows in memory: the same digest as that of their file. Raises BadRows."""
    return summarize(table.schema, iter(table.to_batches(max_chunksize=BATCH_ROWS)))


def read_table(content: bytes) -> pa.Table:
    """All rows of a Parquet file. Raises BadRows."""
    schema, batches = _opened(content)
    return pa.Table.from_batches(list(batches), schema)


def summarize(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> SegmentContent:
    """Raises BadRows."""
    columns = columns_of(schema)
    digest = RowsDigest(columns)
    seen = [_Seen(name, kind) for name, kind in columns]
    try:
        for batch in batches:
            digest.add_forms([each.forms(array) for each, array in zip(seen, batch.columns, strict=True)])
            _check_sizes(digest.rows, digest.size_bytes)
    except UNREADABLE as error:
        raise _unreadable(error) from error
    return SegmentContent(
        digest.rows, digest.size_bytes, digest.digest(_in_order), tuple(each.statistics() for each in seen)
    )


def _check_sizes(rows: int, size_bytes: int) -> None:
    if rows > ROWS_MAX:
        raise BadRows(f"{rows} rows or more: a segment has at most {ROWS_MAX}; divide its interval")
    if size_bytes > FILE_BYTES_MAX:
        raise BadRows(
            f"{size_bytes} bytes of rows or more: a segment has at most {FILE_BYTES_MAX}; divide its interval"
        )


def _in_order(hashes: bytes) -> bytes:
    """As `sorted_hashes`, without holding the interpreter's lock while it sorts."""
    many = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(HASH_BYTES), len(hashes) // HASH_BYTES, [None, pa.py_buffer(hashes)]
    )
    buffer = many.sort().buffers()[1]
    return buffer.to_pybytes()[: len(hashes)] if buffer is not None else b""


def _opened(content: bytes) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema, and the rows in batches. Raises BadRows, also while the batches are read."""
    if len(content) > FILE_BYTES_MAX:
        raise BadRows(f"{len(content)} bytes: a segment has at most {FILE_BYTES_MAX}; divide its interval")
    try:
        found = pq.read_metadata(pa.BufferReader(content))
        if found.num_columns > COLUMNS_MAX:
            raise BadRows(f"{found.num_columns} columns: a segment has at most {COLUMNS_MAX}")
        _check_sizes(found.num_rows, 0)
        decoded = sum(found.row_group(group).total_byte_size for group in range(found.num_row_groups))
        if decoded > DECODED_BYTES_MAX:
            raise BadRows(f"{decoded} bytes without compression: a segment has at most {DECODED_BYTES_MAX}")
        texts = [
            found.schema.column(place).path
            for place in range(found.num_columns)
            if found.schema.column(place).logical_type.type in ("STRING", "NONE")
            and found.schema.column(place).physical_type == "BYTE_ARRAY"
        ]
        file = pq.ParquetFile(
            pa.BufferReader(content),
            read_dictionary=texts,
            coerce_int96_timestamp_unit="us",
            page_checksum_verification=True,
        )
        return file.schema_arrow, _batches(file, found.num_rows)
    except UNREADABLE as error:
        raise _unreadable(error) from error


def _batches(file: pq.ParquetFile, rows: int) -> Iterator[pa.RecordBatch]:
    found = 0
    try:
        for batch in file.iter_batches(batch_size=BATCH_ROWS, use_threads=False):
            batch.validate(full=True)
            found += batch.num_rows
            yield batch
    except UNREADABLE as error:
        raise _unreadable(error) from error
    if found != rows:
        raise BadRows(f"the file has {counted(found, 'row')}, but its footer has {rows}: it is damaged; fetch it again")


def _unreadable(error: BaseException) -> BadRows:
    text = str(error).split("\n")[0][:200]
    return BadRows(f"no Parquet file, or a damaged or incomplete one ({text}): write or fetch it again")


def columns_of(schema: pa.Schema) -> list[tuple[str, ColumnType]]:
    """Raises BadRows for an unsupported type."""
    return [(each.name, _type_of(each)) for each in schema]


def _type_of(column: pa.Field) -> ColumnType:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    for is_of, found in TYPES:
        if is_of(kind):
            return found
    raise BadRows(f"column {column.name[:80]} has the type {str(kind)[:80]}, which segments do not support: cast it")


TYPES = (
    (pa.types.is_integer, ColumnType.INT),
    (pa.types.is_string, ColumnType.STRING),
    (pa.types.is_large_string, ColumnType.STRING),
    (pa.types.is_floating, ColumnType.DOUBLE),
    (pa.types.is_timestamp, ColumnType.TIMESTAMP),
    (pa.types.is_date, ColumnType.DATE),
    (pa.types.is_boolean, ColumnType.BOOLEAN),
    (pa.types.is_decimal, ColumnType.DECIMAL),
    (pa.types.is_binary, ColumnType.BINARY),
    (pa.types.is_large_binary, ColumnType.BINARY),
    (pa.types.is_fixed_size_binary, ColumnType.BINARY),
)


class _Seen:
    """One column, batch by batch. Each distinct value of a batch is converted once."""

    def __init__(self, name: str, kind: ColumnType) -> None:
        self._name, self._kind = name, kind
        self._nulls = 0
        self._least: Any = None
        self._greatest: Any = None
        self._dictionary: pa.Array | None = None
        self._values: list[Any] = []
        self._forms: list[bytes] = []

    def forms(self, array: pa.Array) -> list[bytes]:
        """The canonical forms of the values. Many batches of a file have the same dictionary."""
        if not pa.types.is_dictionary(array.type):
            array = array.dictionary_encode()
        if self._dictionary is None or not array.dictionary.equals(self._dictionary):
            self._dictionary = array.dictionary
            self._values = values_of(array.dictionary, self._kind)
            self._forms = [self._kind.form(value) for value in self._values]
        places = array.indices.to_pylist()
        forms = [NO_VALUE if place is None else self._forms[place] for place in places]
        self._nulls += forms.count(NO_VALUE)
        self._compare({place for place in places if place is not None})
        return forms

    def _compare(self, places: set[int]) -> None:
        """A dictionary may have values that no row has."""
        values = [value for place in places if (value := self._values[place]) is not None and value == value]
        if values:
            least, greatest = min(values), max(values)
            self._least = least if self._least is None else min(self._least, least)
            self._greatest = greatest if self._greatest is None else max(self._greatest, greatest)

    def statistics(self) -> ColumnStatistics:
        least, greatest = shown(self._kind, self._least), shown(self._kind, self._greatest)
        return ColumnStatistics(self._name, self._kind, self._nulls, least, greatest)


def values_of(array: pa.Array, kind: ColumnType) -> list[Any]:
    """The values as `rows_digest` has them."""
    if kind is ColumnType.TIMESTAMP:
        factor = NS_OF_UNIT[array.type.unit]
        return [None if each is None else each * factor for each in array.cast(pa.int64()).to_pylist()]
    if kind is ColumnType.DATE:
        return list(array.cast(pa.date32()).cast(pa.int32()).to_pylist())
    if kind is ColumnType.DOUBLE:
        return list(array.cast(pa.float64()).to_pylist())
    return list(array.to_pylist())


def shown(kind: ColumnType, value: Any) -> str | int | float | bool | None:
    """A value in JSON: times in ISO 8601 (UTC), decimals as text, bytes as hex digits, the infinities as text."""
    if value is None:
        return None
    if kind is ColumnType.TIMESTAMP:
        return time_shown(value)
    if kind is ColumnType.DATE:
        return time_shown(value * DAY_NS)[:10]
    if kind is ColumnType.BINARY:
        return bytes(value).hex()
    if kind is ColumnType.DECIMAL or (kind is ColumnType.DOUBLE and math.isinf(value)):
        return str(value)
    return value  # type: ignore[no-any-return]


def time_shown(moment_ns: int) -> str:
    """Such as 2013-03-01T06:00:00Z, with as many digits of the second as there are. Outside of the years 1 to 9999 the
    number of nanoseconds."""
    seconds, rest_ns = divmod(moment_ns, 1_000_000_000)
    try:
        text = time_text(seconds * 1_000)
    except BadField:
        return str(moment_ns)
    fraction = f"{rest_ns:09}".rstrip("0")
    return f"{text[:19]}.{fraction}Z" if fraction else f"{text[:19]}Z"
