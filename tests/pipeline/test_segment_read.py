"""Reads of tables: complete, or refused with the list; columns; and places from which a segment is read (issue 18)."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest

from palisade.base.http_request import NoAnswer
from palisade.catalog.parquet_rows import inspect_table, parquet_of
from palisade.client.segment_query import CutSegment
from palisade.pipeline import segment_fetch
from palisade.pipeline.errors import BadOption, BadValue
from palisade.pipeline.options import access_of, read_options, table_options
from palisade.pipeline.segment_fetch import ATTEMPTS, RowsNotThere, fetch, verified
from palisade.pipeline.segment_interval import interval_of
from palisade.pipeline.segment_read import ReadableSegment, TableUnavailable, fitted, parts_of, schema_of

NODE = {"endpoints": "127.0.0.1:7601"}
TABLE = NODE | {"table": "sales", "interval": "2013-03/2013-04"}
ROWS = pa.table({"id": pa.array([1, 2], pa.int32()), "name": ["a", "b"]})
DIGEST = inspect_table(ROWS).digest


def name(day: int) -> str:
    return f"sales/2013-03-{day:02}T00:00:00.000Z/2013-03-{day + 1:02}T00:00:00.000Z/0000000000000001/00000"


def found(days: int, **more: Any) -> dict[str, Any]:
    """The answer of a broker with one segment a day."""
    names = [name(day) for day in range(1, days + 1)]
    segments = [
        {"segment": each, "from": each.split("/")[1], "to": each.split("/")[2], "nodes": ["f1", "f2"]} for each in names
    ]
    records = {each: {"segment": each, "digest": DIGEST, "rows": 2} for each in names}
    return {"segments": segments, "missing": [], "unserved": [], "loading": [], "records": records} | more


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        ("2013-03/2013-04", ("2013-03-01T00:00:00.000Z", "2013-04-01T00:00:00.000Z")),
        ("2013/2014", ("2013-01-01T00:00:00.000Z", "2014-01-01T00:00:00.000Z")),
        ("2013-03-01/2013-03-01T06:00Z", ("2013-03-01T00:00:00.000Z", "2013-03-01T06:00:00.000Z")),
    ],
)
def test_interval_has_years_months_days_or_times(text: str, bounds: tuple[str, str]) -> None:
    assert interval_of(text) == bounds


@pytest.mark.parametrize("text", ["", "2013-03", "2013-04/2013-03", "2013-03/2013-03", "2013-13/2014-01", "a/b", "/"])
def test_interval_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadOption, match="option interval"):
        interval_of(text)


def test_options_of_a_table_are_not_mixed_with_those_of_keys() -> None:
    options = table_options(TABLE | {"columns": "id, name"})
    assert options is not None
    assert (options.table, options.columns) == ("sales", ("id", "name"))
    assert table_options(NODE | {"prefix": "a"}) is None
    for bad, reason in (
        (TABLE | {"prefix": "a"}, "prefix has no effect on reads of a table: omit it"),
        (NODE | {"interval": "2013/2014"}, "interval is for tables"),
        (NODE | {"table": "sales"}, "option interval="),
        (TABLE | {"columns": "id,name,id"}, "'id' twice"),
    ):
        with pytest.raises(BadOption, match=reason):
            table_options(bad)
    assert read_options(NODE).partitions == 0


def test_read_has_every_segment_of_the_answer_with_its_record() -> None:
    parts = parts_of(found(2))
    assert parts == [ReadableSegment(name(day), DIGEST, 2, "", ("f1", "f2")) for day in (1, 2)]


def test_segment_without_servers_is_read_from_the_file_in_its_record() -> None:
    answer = found(1, unserved=[name(2)])
    with pytest.raises(TableUnavailable) as failed:
        parts_of(answer)
    assert failed.value.segments == [name(2)]
    record = {"segment": name(2), "digest": DIGEST, "rows": 2, "url": "file:///data/2.parquet"}
    parts = parts_of(answer | {"records": answer["records"] | {name(2): record}})
    assert parts[1] == ReadableSegment(name(2), DIGEST, 2, "file:///data/2.parquet", ())


@pytest.mark.parametrize("lacking", ["missing", "loading"])
def test_incomplete_answer_is_refused_with_all_segments_that_are_missing(lacking: str) -> None:
    names = [name(day) for day in range(3, 20)]
    with pytest.raises(TableUnavailable) as failed:
        parts_of(found(2, **{lacking: names}))
    assert failed.value.segments == names
    assert all(each in str(failed.value) for each in names)


def test_segment_that_still_grows_or_has_no_record_is_missing() -> None:
    answer = found(2)
    answer["records"][name(1)]["digest"] = ""
    del answer["records"][name(2)]
    with pytest.raises(TableUnavailable) as failed:
        parts_of(answer)
    assert failed.value.segments == [name(1), name(2)]


def test_interval_that_ends_within_a_segment_is_refused() -> None:
    answer = found(1)
    answer["segments"][0]["to"] = "2013-03-01T06:00:00.000Z"
    with pytest.raises(CutSegment):
        parts_of(answer)


def test_columns_have_64_bits_and_can_be_chosen() -> None:
    rows = pa.schema([("id", pa.int16()), ("at", pa.timestamp("ms")), ("x", pa.float32()), ("d", pa.decimal128(9, 2))])
    whole = schema_of(rows, ())
    assert whole.types == [pa.int64(), pa.timestamp("us", "UTC"), pa.float64(), pa.decimal128(9, 2)]
    assert schema_of(rows, ("x", "id")).names == ["x", "id"]
    with pytest.raises(BadOption, match=r"no column 'y'; it has id, at, x, d"):
        schema_of(rows, ("id", "y"))


def test_rows_of_a_segment_fit_the_columns_of_the_read_or_are_refused() -> None:
    at = datetime.datetime(2013, 3, 1, tzinfo=datetime.UTC)
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    naive = pa.table({"at": pa.array([at.replace(tzinfo=None)], pa.timestamp("ns")), "id": pa.array([7], pa.int8())})
    assert fitted(naive, schema, "s", False).to_pylist() == [{"id": 7, "at": at}]
    assert fitted(ROWS, schema, "s", True).to_pylist() == [{"id": 1, "at": None}, {"id": 2, "at": None}]
    with pytest.raises(BadValue, match="has the column 'name', which the newest segment"):
        fitted(ROWS, schema, "s", False)
    for misfit in (pa.array([1 << 63], pa.uint64()), pa.array(["x"])):
        with pytest.raises(BadValue, match="segment s has values that do not fit"):
            fitted(pa.table({"id": misfit}), schema, "s", False)
    with pytest.raises(BadValue, match="do not fit"):
        fitted(pa.table({"at": pa.array([1], pa.timestamp("ns"))}), schema, "s", False)


class Places:
    """Nodes and a file, some of which have the rows; the broker's client. `servers`: what it answers in turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, content: dict[str, bytes], servers: list[list[str]]) -> None:
        self.content, self.servers, self.asked = content, servers, list[str]()
        monkeypatch.setattr(segment_fetch, "connect", lambda _: self)
        monkeypatch.setattr(segment_fetch, "_content", self.read)

    def __enter__(self) -> Places:
        return self

    def __exit__(self, *_: object) -> None: ...

    def topology(self) -> dict[str, Any]:
        return {"logical": [{"id": f"f{number}", "addresses": {"http": f"h{number}:1"}} for number in range(1, 5)]}

    def segment(self, _: str) -> dict[str, Any]:
        return {"nodes": self.servers.pop(0) if self.servers else []}

    def read(self, _: ReadableSegment, place: str, *__: object) -> bytes:
        self.asked.append(place)
        if place not in self.content:
            raise NoAnswer(place, "connection refused")
        return self.content[place]

    def fetch(self, *nodes: str, url: str = "") -> pa.Table:
        part = ReadableSegment(name(1), DIGEST, 2, url, nodes)
        return fetch(part, access_of(NODE), lambda _: None)


def test_segment_that_moved_is_read_from_its_new_node(monkeypatch: pytest.MonkeyPatch) -> None:
    places = Places(monkeypatch, {"h3:1": parquet_of(ROWS)}, [["f1"], ["f3"]])
    assert places.fetch("f1", "f2").to_pylist() == ROWS.to_pylist()
    assert sorted(places.asked[:2]) == ["h1:1", "h2:1"]
    assert places.asked[2:] == ["h1:1", "h3:1"]


def test_copy_with_other_rows_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    other = parquet_of(pa.table({"id": pa.array([1, 3], pa.int32()), "name": ["a", "b"]}))
    good, torn = parquet_of(ROWS), parquet_of(ROWS)[:-9]
    places = Places(monkeypatch, {"h1:1": other, "h2:1": torn, "file:///s": good}, [])
    assert places.fetch("f1", "f2", url="file:///s").to_pylist() == ROWS.to_pylist()
    part = ReadableSegment(name(1), DIGEST, 2, "", ())
    for content in (other, torn):
        with pytest.raises(RowsNotThere):
            verified(part, content)


def test_segment_that_no_place_has_fails_with_its_name_and_the_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    places = Places(monkeypatch, {}, [["f2"]] * 10)
    with pytest.raises(TableUnavailable, match=r"1 segment \(no node answers at h1:1: connection refused.*\):\nsales/"):
        places.fetch("f1")
    assert len(places.asked) == ATTEMPTS
