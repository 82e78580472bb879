"""The number of rows of a segment, and its columns: facts of the real data set (issue 17)."""

from __future__ import annotations

from itertools import takewhile

from palisade.catalog.demo.flights import find_data, read_rows
from palisade.catalog.demo.segments import contents_of
from palisade.catalog.demo.tables import FLIGHTS
from palisade.segments.rows import columns_of, count_rows
from tests.support.segment_names import name, segment


def test_first_day_of_flights() -> None:
    rows = takewhile(lambda row: row[FLIGHTS.header.index("day")] == "1", read_rows(find_data(), FLIGHTS))
    content = contents_of(FLIGHTS, rows)[segment(1).id.interval]
    assert count_rows(content) == 842
    columns = {each["name"]: each for each in columns_of(name(1), content)}
    assert list(columns) == FLIGHTS.header
    assert columns["month"] == {"name": "month", "type": "int", "nulls": 0, "min": 1, "max": 1}
    assert columns["dep_time"] == {"name": "dep_time", "type": "int", "nulls": 4, "min": 517, "max": 2356}
    assert (columns["carrier"]["min"], columns["carrier"]["max"]) == ("9E", "WN")


def test_data_source_with_unknown_columns_has_none() -> None:
    assert columns_of(name(1, "ships"), b"a\x1fb\x1e") == []
    assert count_rows(b"") == 0
