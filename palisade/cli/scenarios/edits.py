"""Changes of the demo catalog from day to day. Pure and deterministic.

Rows that arrive late give a partition more rows and another digest; planes are retired.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from itertools import islice

from palisade.catalog.demo.entries import ROOT, CatalogEntry
from palisade.catalog.demo.tables import FLIGHTS

PARTITIONS = f"{ROOT}partitions/".encode()
LATE_FLIGHT = "9999"
PLANES = f"{ROOT}planes/".encode()


def below(entries: Sequence[CatalogEntry], prefix: bytes) -> list[CatalogEntry]:
    return [entry for entry in entries if entry.key.startswith(prefix)]


def late_rows(partitions: Sequence[CatalogEntry], count: int, wave: int = 1) -> list[CatalogEntry]:
    """`count` changes of these partitions, in rotation."""
    return [late_row(partitions[number % len(partitions)], wave + number // len(partitions)) for number in range(count)]


def late_row(partition: CatalogEntry, wave: int) -> CatalogEntry:
    record = json.loads(partition.value)
    digest = hashlib.sha256(f"{record['digest']}/{wave}".encode()).hexdigest()
    record |= {"rows": record["rows"] + wave, "size_bytes": record["size_bytes"] + 97 * wave}
    record["digest"] = f"sha256:{digest}"
    return CatalogEntry(partition.key, json.dumps(record, sort_keys=True, separators=(",", ":")).encode())


def late_flights(rows: Sequence[Sequence[str]], days: Collection[str]) -> list[list[str]]:
    """The flights plus one more on each of these days of the month: a copy of the day's last one with a new number."""
    day, flight = FLIGHTS.header.index("day"), FLIGHTS.header.index("flight")
    last = {row[day]: row for row in rows if row[day] in days}
    late = [list(row) for row in last.values()]
    for row in late:
        row[flight] = LATE_FLIGHT
    return [*map(list, rows), *late]


def retired(entries: Sequence[CatalogEntry], prefix: bytes, count: int) -> list[bytes]:
    """The last keys with the prefix."""
    return [entry.key for entry in islice(reversed(below(entries, prefix)), count)]
