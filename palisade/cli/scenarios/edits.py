"""Changes of the demo catalog from day to day. Pure and deterministic.

Airports get another altitude; flights arrive late; planes are retired.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from itertools import islice

from palisade.catalog.demo.entries import ROOT, CatalogEntry
from palisade.catalog.demo.tables import FLIGHTS

AIRPORTS = f"{ROOT}airports/".encode()
LATE_FLIGHT = "9999"
PLANES = f"{ROOT}planes/".encode()


def below(entries: Sequence[CatalogEntry], prefix: bytes) -> list[CatalogEntry]:
    return [entry for entry in entries if entry.key.startswith(prefix)]


def corrected(airports: Sequence[CatalogEntry], count: int, wave: int = 1) -> list[CatalogEntry]:
    """`count` changes of these airports, in rotation."""
    return [corrected_once(airports[number % len(airports)], wave + number // len(airports)) for number in range(count)]


def corrected_once(airport: CatalogEntry, wave: int) -> CatalogEntry:
    record = json.loads(airport.value)
    record["alt"] += wave
    return CatalogEntry(airport.key, json.dumps(record, sort_keys=True, separators=(",", ":")).encode())


def late_flights(rows: Sequence[Sequence[str]], days: Collection[str]) -> list[list[str]]:
    """The flights and, on each of these days of the month, one more: a copy of the day's last one with a new number."""
    day, flight = FLIGHTS.header.index("day"), FLIGHTS.header.index("flight")
    last = {row[day]: row for row in rows if row[day] in days}
    late = [list(row) for row in last.values()]
    for row in late:
        row[flight] = LATE_FLIGHT
    return [*map(list, rows), *late]


def retired(entries: Sequence[CatalogEntry], prefix: bytes, count: int) -> list[bytes]:
    """The last keys with the prefix."""
    return [entry.key for entry in islice(reversed(below(entries, prefix)), count)]
