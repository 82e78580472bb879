"""The columns of a segment's rows: facts of the real data set (issue 17)."""

from __future__ import annotations

from itertools import takewhile

import pytest

from palisade.catalog.demo.flights import find_data, read_rows
from palisade.catalog.demo.segment_files import segment_files
from palisade.catalog.demo.segments import records_of
from palisade.catalog.demo.tables import FLIGHTS
from palisade.segments.rows import columns_of
from palisade.segments.verification import inspected
from palisade.wire.segment_errors import BadSegment
from tests.support.segment_names import segment


def test_first_day_of_flights() -> None:
    rows = list(takewhile(lambda row: row[FLIGHTS.header.index("day")] == "1", read_rows(find_data(), FLIGHTS)))
    content = segment_files(FLIGHTS, rows)[segment(1).id.interval]
    found, (record,) = inspected(content), records_of(FLIGHTS, rows)
    assert (found.rows, found.size_bytes, found.digest) == (842, record.size_bytes, record.digest)
    columns = {each["name"]: each for each in columns_of(content)}
    assert list(columns) == FLIGHTS.header
    assert columns["month"] == {"name": "month", "type": "int", "nulls": 0, "min": 1, "max": 1}
    assert columns["dep_time"] == {"name": "dep_time", "type": "int", "nulls": 4, "min": 517, "max": 2356}
    assert (columns["carrier"]["min"], columns["carrier"]["max"]) == ("9E", "WN")
    assert columns["time_hour"] == {
        "name": "time_hour",
        "type": "timestamp",
        "nulls": 0,
        "min": "2013-01-01T10:00:00Z",
        "max": "2013-01-02T04:00:00Z",
    }


def test_other_file_has_no_columns() -> None:
    with pytest.raises(BadSegment, match="no Parquet file"):
        columns_of(b"a\x1fb\x1e")
