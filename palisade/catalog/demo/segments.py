"""The demo's tables as data sources: a segment per day of flights and weather, one for the year of the others. Pure.

The digest of a segment is SHA-256 over its rows in the order of the file, the fields joined by U+001F, each row ended
by U+001E.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from palisade.catalog.demo.tables import DemoTable
from palisade.catalog.errors import BadField
from palisade.catalog.segment import Segment, SegmentRecord, time_ms
from palisade.catalog.timeline import Interval, SegmentId

VERSION = 1
REPLICAS = 1
DAY_MS = 86_400_000


def midnight_ms(year: int, month: int, day: int) -> int:
    """Raises ValueError for a day that does not exist."""
    try:
        return time_ms(f"{year:04}-{month:02}-{day:02}T00:00:00.000Z")
    except BadField as error:
        raise ValueError(str(error)) from None


YEAR = Interval(midnight_ms(2013, 1, 1), midnight_ms(2014, 1, 1))
"""Of the tables without a day."""


@dataclass(slots=True)
class SegmentRows:
    """The rows of one segment, accumulated row by row."""

    rows: int = 0
    size_bytes: int = 0
    digest: Any = field(default_factory=hashlib.sha256)

    def add(self, row: Sequence[str]) -> None:
        line = line_of(row)
        self.digest.update(line)
        self.rows += 1
        self.size_bytes += len(line)

    def record(self, segment: Segment) -> SegmentRecord:
        return SegmentRecord(segment, 1, self.rows, self.size_bytes, f"sha256:{self.digest.hexdigest()}", REPLICAS)


def line_of(row: Sequence[str]) -> bytes:
    """A row as it is stored in a segment."""
    return ("\x1f".join(row) + "\x1e").encode()


def segment_of(table: DemoTable, interval: Interval, version: int = VERSION) -> Segment:
    return Segment(table.name, SegmentId(interval, version, 0))


def records_of(table: DemoTable, rows: Iterable[Sequence[str]]) -> list[SegmentRecord]:
    """In the order of time. Raises ValueError."""
    found: dict[Interval, SegmentRows] = {}
    for interval, row in rows_with_interval(table, rows):
        found.setdefault(interval, SegmentRows()).add(row)
    return [found[interval].record(segment_of(table, interval)) for interval in sorted(found)]


def contents_of(table: DemoTable, rows: Iterable[Sequence[str]]) -> dict[Interval, bytes]:
    """The bytes of all rows of each segment, over which its digest is computed. Raises ValueError."""
    found: dict[Interval, bytearray] = {}
    for interval, row in rows_with_interval(table, rows):
        found.setdefault(interval, bytearray()).extend(line_of(row))
    return {interval: bytes(content) for interval, content in found.items()}


def rows_with_interval(table: DemoTable, rows: Iterable[Sequence[str]]) -> Iterator[tuple[Interval, Sequence[str]]]:
    """Each with the interval of its segment. Raises ValueError."""
    places = None if table.key else [table.header.index(name) for name in ("year", "month", "day")]
    known: dict[tuple[str, ...], Interval] = {}
    for row in rows:
        if len(row) != len(table.header):
            raise ValueError(f"{table.name}: a row has {len(row)} fields instead of {len(table.header)}: {row}")
        if places is None:
            yield YEAR, row
            continue
        parts = tuple(row[place] for place in places)
        interval = known.get(parts)
        if interval is None:
            start_ms = midnight_ms(*map(int, parts))
            interval = known[parts] = Interval(start_ms, start_ms + DAY_MS)
        yield interval, row
