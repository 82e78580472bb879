"""The demo's tables as data sources: a segment per day of flights and weather, one for the year of the others. Pure.

The digest of a segment is that over its rows (`catalog/rows_digest.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter

from palisade.base.counted import counted
from palisade.catalog.demo.tables import DemoColumn, DemoTable, DemoType
from palisade.catalog.errors import BadField
from palisade.catalog.rows_digest import ColumnType, RowsDigest, Value
from palisade.catalog.segment import Segment, SegmentRecord, time_ms
from palisade.catalog.timeline import Interval, SegmentId

VERSION = 1
REPLICAS = 1
DAY_MS = 86_400_000
FIELD_END, ROW_END = "\x1f", "\x1e"


def midnight_ms(year: int, month: int, day: int) -> int:
    """Raises ValueError for a day that does not exist."""
    try:
        return time_ms(f"{year:04}-{month:02}-{day:02}T00:00:00.000Z")
    except BadField as error:
        raise ValueError(str(error)) from None


YEAR = Interval(midnight_ms(2013, 1, 1), midnight_ms(2014, 1, 1))
"""Of the tables without a day."""


def columns_of(table: DemoTable) -> list[tuple[str, ColumnType]]:
    return [(column.name, ColumnType(column.kind.value)) for column in table.columns]


def value_of(column: DemoColumn, text: str) -> Value:
    """As in `catalog/rows_digest.py`. Raises ValueError."""
    value = column.read(text)
    if column.kind is DemoType.TIMESTAMP and value is not None:
        try:
            return time_ms(f"{text[:-1]}.000Z") * 1_000_000
        except BadField as error:
            raise ValueError(str(error)) from None
    return value


class Forms(dict[str, bytes]):
    """Text -> canonical form, of one column. Each distinct text is converted once."""

    def __init__(self, table: DemoTable, column: DemoColumn) -> None:
        super().__init__()
        self._column, self._kind = column, ColumnType(column.kind.value)
        self._name = f"{table.name}.{column.name}"

    def __missing__(self, text: str) -> bytes:
        """Raises ValueError that names the column."""
        try:
            form = self[text] = self._kind.form(value_of(self._column, text))
        except ValueError as error:
            raise ValueError(f"{self._name}: {error}") from None
        return form


def segment_of(table: DemoTable, interval: Interval, version: int = VERSION) -> Segment:
    return Segment(table.name, SegmentId(interval, version, 0))


def records_of(table: DemoTable, rows: Iterable[Sequence[str]]) -> list[SegmentRecord]:
    """In the order of time. Raises ValueError."""
    found: dict[Interval, RowsDigest] = {}
    columns = columns_of(table)
    forms = [Forms(table, column) for column in table.columns]
    for interval, run in groupby(rows_with_interval(table, rows), itemgetter(0)):
        texts = zip(*(row for _, row in run), strict=True)
        digest = found.get(interval)
        if digest is None:
            digest = found[interval] = RowsDigest(columns)
        digest.add_forms([list(map(form.__getitem__, column)) for form, column in zip(forms, texts, strict=True)])
    return [record_of(segment_of(table, interval), found[interval]) for interval in sorted(found)]


def record_of(segment: Segment, rows: RowsDigest) -> SegmentRecord:
    return SegmentRecord(segment, 1, rows.rows, rows.size_bytes, rows.digest(), REPLICAS)


def texts_of(table: DemoTable, rows: Iterable[Sequence[str]]) -> dict[Interval, bytes]:
    """The rows of each segment as text, in little memory (`rows_in`). Raises ValueError."""
    found: dict[Interval, bytearray] = {}
    for interval, row in rows_with_interval(table, rows):
        found.setdefault(interval, bytearray()).extend(f"{FIELD_END.join(row)}{ROW_END}".encode())
    return {interval: bytes(text) for interval, text in found.items()}


def rows_in(table: DemoTable, text: bytes) -> list[list[Value]]:
    """The inverse of `texts_of` for one segment. Raises ValueError."""
    columns = table.columns
    return [
        [value_of(column, each) for column, each in zip(columns, row.split(FIELD_END), strict=True)]
        for row in text.decode().split(ROW_END)[:-1]
    ]


def rows_with_interval(table: DemoTable, rows: Iterable[Sequence[str]]) -> Iterator[tuple[Interval, Sequence[str]]]:
    """Each with the interval of its segment. Raises ValueError."""
    header = table.header
    day_of = None if table.key else itemgetter(*map(header.index, ("year", "month", "day")))
    known: dict[tuple[str, ...], Interval] = {}
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"{table.name}: a row has {counted(len(row), 'field')} instead of {len(header)}: {row}")
        if day_of is None:
            yield YEAR, row
            continue
        parts = day_of(row)
        interval = known.get(parts)
        if interval is None:
            start_ms = midnight_ms(*map(int, parts))
            interval = known[parts] = Interval(start_ms, start_ms + DAY_MS)
        yield interval, row
