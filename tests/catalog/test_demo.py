"""The demo catalog is made of the real data set: its counts are facts (issue 2, "Real input")."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from palisade.catalog.demo.entries import DONE_KEY, DemoCatalog, done_entry
from palisade.catalog.demo.flights import DataSetError, find_data, read_rows
from palisade.catalog.demo.segments import columns_of, records_of, value_of
from palisade.catalog.demo.tables import FLIGHTS, TABLES, WEATHER, DemoTable
from palisade.catalog.rows_digest import RowsDigest
from palisade.client import bulk_load
from tests.catalog.known_records import STORED, computed, computed_catalog, text_of
from tests.support.segment_names import segment

ROWS = {"flights": 336_776, "planes": 3_322, "airports": 1_458, "airlines": 16, "weather": 26_115}


@pytest.fixture(scope="module")
def catalog() -> DemoCatalog:
    return computed_catalog()


@pytest.fixture(scope="module")
def entries(catalog: DemoCatalog) -> dict[str, dict]:
    return {entry.key.decode(): json.loads(entry.value) for entry in catalog.entries}


def below(entries: dict[str, dict], prefix: str) -> dict[str, dict]:
    return {key: value for key, value in entries.items() if key.startswith(prefix)}


def test_every_table_has_its_columns_and_the_known_number_of_rows(entries: dict[str, dict]) -> None:
    tables = {value["name"]: value for value in below(entries, "/catalog/tables/").values()}
    assert {name: table["rows"] for name, table in tables.items()} == ROWS
    assert {name: len(table["columns"]) for name, table in tables.items()} == {
        "flights": 19, "planes": 9, "airports": 8, "airlines": 2, "weather": 15
    }  # fmt: skip
    assert tables["flights"]["columns"][3] == {"name": "dep_time", "type": "int", "nullable": True}


@pytest.mark.parametrize("table", ["planes", "airports", "airlines"])
def test_every_plane_airport_and_airline_has_a_key(entries: dict[str, dict], table: str) -> None:
    assert len(below(entries, f"/catalog/{table}/")) == ROWS[table]


@pytest.mark.parametrize(
    ("table", "segments"), [("flights", 365), ("weather", 364), ("planes", 1), ("airports", 1), ("airlines", 1)]
)
def test_segments_of_each_table_hold_every_row(catalog: DemoCatalog, table: str, segments: int) -> None:
    """The data set has no weather of New Year's Eve."""
    found = [record for record in catalog.segments if record.segment.data_source == table]
    assert len({record.segment for record in found}) == segments
    assert sum(record.rows for record in found) == ROWS[table]


def test_entry_matches_the_file(entries: dict[str, dict]) -> None:
    assert entries["/catalog/airlines/UA"] == {"carrier": "UA", "name": "United Air Lines Inc."}
    assert entries["/catalog/airports/JFK"]["name"] == "John F Kennedy Intl"
    assert entries["/catalog/planes/N10156"]["speed"] is None


@pytest.mark.parametrize("table", [FLIGHTS, WEATHER])
def test_segment_digest_covers_its_rows(catalog: DemoCatalog, table) -> None:
    year, month, day = (table.header.index(name) for name in ("year", "month", "day"))
    rows = [row for row in read_rows(find_data(), table) if (row[year], row[month], row[day]) == ("2013", "2", "3")]
    digest = RowsDigest(columns_of(table))
    for row in reversed(rows):
        digest.add([value_of(column, text) for column, text in zip(table.columns, row, strict=True)])
    record = next(each for each in catalog.segments if each.segment == segment(3, table.name, month=2))
    assert (record.rows, record.digest, record.size_bytes) == (len(rows), digest.digest(), digest.size_bytes)


def test_every_value_has_the_type_of_its_column() -> None:
    for table in TABLES:
        for row in read_rows(find_data(), table):
            table.record(row)


def test_stored_records_are_those_of_the_rows(catalog: DemoCatalog) -> None:
    assert STORED.read_text(encoding="utf-8") == text_of(computed(catalog)), (
        "write them again: python -m tests.catalog.known_records"
    )


def test_catalog_with_stored_records_is_the_computed_one(
    catalog: DemoCatalog, entries: dict[str, dict], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it reads only the rows that are entries."""
    read = []

    def noted(folder: Path, table: DemoTable) -> Iterator[list[str]]:
        read.append(table.name)
        return read_rows(folder, table)

    monkeypatch.setattr(bulk_load, "read_rows", noted)
    found = bulk_load.read_demo()
    assert read == ["airlines", "airports", "planes"]
    *first, last = found.entries
    assert first == catalog.entries
    assert json.loads(last.value)["entries"] == len(entries)
    assert [each.to_bytes() for each in found.segments] == [each.to_bytes() for each in catalog.segments]


def test_records_of_a_file_with_other_bytes_are_computed(catalog: DemoCatalog, tmp_path: Path) -> None:
    for path in find_data().iterdir():
        shutil.copyfile(path, tmp_path / path.name)
    *rows, _ = (tmp_path / "weather.csv").read_text().splitlines(keepends=True)
    (tmp_path / "weather.csv").write_text("".join(rows))
    found = bulk_load.read_demo(tmp_path).segments
    counted = Counter(dict.fromkeys(ROWS, 0))
    for record in found:
        counted[record.segment.data_source] += record.rows
    assert counted == ROWS | {"weather": ROWS["weather"] - 1}
    assert [each for each in found if each not in catalog.segments] == [
        each for each in found if each.segment == segment(30, WEATHER.name, month=12)
    ]


def test_the_mark_of_completeness_lies_beside_the_tables(entries: dict[str, dict]) -> None:
    assert done_entry(len(entries), "s").key == DONE_KEY
    assert DONE_KEY.decode() not in entries


def test_missing_data_set_is_rejected_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(DataSetError, match="is not a folder"):
        find_data(tmp_path / "none")
    with pytest.raises(DataSetError, match=r"flights\.csv is missing"):
        list(read_rows(tmp_path, FLIGHTS))


def test_file_with_other_columns_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "flights.csv").write_text("year,month\n2013,1\n")
    with pytest.raises(DataSetError, match="has the columns"):
        list(read_rows(tmp_path, FLIGHTS))


def test_broken_archive_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "flights.csv.zip").write_bytes(b"not a zip")
    with pytest.raises(DataSetError, match="can't be read"):
        list(read_rows(tmp_path, FLIGHTS))


def test_value_of_the_wrong_type_is_rejected_with_its_column() -> None:
    with pytest.raises(ValueError, match=r"^flights\.year: "):
        FLIGHTS.record(["x"] * len(FLIGHTS.columns))
    row = next(read_rows(find_data(), FLIGHTS))
    with pytest.raises(ValueError, match=r"^flights\.time_hour: 'x'"):
        records_of(FLIGHTS, [[*row[:-1], "x"]])
    with pytest.raises(ValueError, match=r"^flights\.time_hour: .* no time"):
        records_of(FLIGHTS, [[*row[:-1], "2013-01-32T10:00:00Z"]])
