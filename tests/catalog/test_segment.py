"""Names, keys and records of segments: canonical, and hostile input is refused by name (issue 17, "Bad input")."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palisade.catalog.errors import BadField, CatalogError, DamagedRow, NewerRow, NotAllowed
from palisade.catalog.segment import (
    ANNOUNCED,
    EXAMPLE,
    RECORDS,
    Segment,
    SegmentRecord,
    announced_by,
    parse_segment,
    segment_of_record,
    time_ms,
    time_text,
)
from palisade.catalog.timeline import Interval, SegmentId, ServingState

MARCH_MS, APRIL_MS = 1362096000000, 1364774400000
SEGMENT = Segment("flights", SegmentId(Interval(MARCH_MS, APRIL_MS), 7, 2))
TEXT = "flights/2013-03-01T00:00:00.000Z/2013-04-01T00:00:00.000Z/0000000000000007/00002"
RECORD = SegmentRecord(SEGMENT, 3, 28834, 1 << 20, "sha256:" + "0a" * 32, replicas=2)

moments = st.integers(-62135596800000, 253402300799999)


def test_segment_name_is_readable_and_parses_back() -> None:
    assert str(SEGMENT) == TEXT
    assert parse_segment(TEXT) == SEGMENT
    assert segment_of_record(SEGMENT.key) == SEGMENT
    assert announced_by(SEGMENT.announcement_key("n1")) == ("n1", SEGMENT)


@given(moments)
def test_times_round_trip(moment_ms: int) -> None:
    assert time_ms(time_text(moment_ms)) == moment_ms


@given(st.lists(moments, min_size=2, max_size=2, unique=True))
def test_keys_are_in_the_order_of_time(pair: list[int]) -> None:
    first, second = sorted(pair)
    assert time_text(first) < time_text(second)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "flights",
        "flights/2013-03-01/2013-04-01/1/0",
        TEXT.replace("flights", "../flights"),
        TEXT.replace("flights", ""),
        TEXT.replace("0000000000000007", "7"),
        TEXT.replace("00002", "2"),
        TEXT.replace("00002", "-0002"),
        TEXT.replace("00002", "٠٠٠٠٢"),
        TEXT.replace("2013-04", "2013-13"),
        TEXT.replace("Z/2013", "+00:00/2013"),
        TEXT + "/",
        TEXT * 1000,
    ],
)
def test_segment_name_in_another_form_is_refused(text: str) -> None:
    with pytest.raises(BadField, match=r"segment|interval|data_source"):
        parse_segment(text)


@pytest.mark.parametrize("key", [RECORDS + b"x", RECORDS + b"\xff", RECORDS, RECORDS + TEXT.encode()[:-1]])
def test_key_that_names_no_segment_is_damaged(key: bytes) -> None:
    with pytest.raises(DamagedRow, match="names no segment"):
        segment_of_record(key)
    with pytest.raises(DamagedRow, match="names no segment"):
        announced_by(ANNOUNCED + b"n1/" + key.removeprefix(RECORDS))


FILED = replace(RECORD, url="file:///data/flights/2013-03-01.parquet")


@pytest.mark.parametrize(
    "record", [RECORD, FILED, RECORD.marked_loaded(), RECORD.marked_unused(), RECORD.with_replicas(0)]
)
def test_record_round_trips(record: SegmentRecord) -> None:
    assert SegmentRecord.from_bytes(SEGMENT.key, record.to_bytes()) == record


def test_record_without_a_file_has_the_bytes_of_earlier_versions() -> None:
    assert b"url" not in RECORD.to_bytes()
    assert FILED.marked_loaded().marked_unused().url == FILED.url


def test_record_states_what_queries_may_count_on() -> None:
    assert RECORD.state() is ServingState.LOADING
    assert RECORD.marked_loaded().state() is ServingState.QUERYABLE
    assert RECORD.marked_loaded().with_replicas(0).state() is ServingState.UNSERVED
    assert RECORD.marked_loaded().with_replicas(0).with_replicas(1).state() is ServingState.LOADING
    assert RECORD.marked_loaded().with_replicas(1).state() is ServingState.QUERYABLE
    assert not RECORD.marked_loaded().marked_unused().loaded


@pytest.mark.parametrize(("part", "text"), [("version", "v9"), ("partition", "p")])
def test_invalid_number_in_the_name_of_a_segment_is_named(part: str, text: str) -> None:
    """The reason was the shape of all names, which the name had (issue 16)."""
    *start, version, partition = EXAMPLE.split("/")
    numbers = {"version": version, "partition": partition, part: text}
    with pytest.raises(BadField, match=f"its {part} '{text}' is no number; an example of a segment is {EXAMPLE}"):
        parse_segment("/".join([*start, *numbers.values()]))
    assert str(parse_segment(EXAMPLE)) == EXAMPLE


@pytest.mark.parametrize("record", [RECORD.marked_unused(), RECORD.with_replicas(0)])
def test_record_without_use_or_replicas_is_not_marked_loaded(record: SegmentRecord) -> None:
    with pytest.raises(NotAllowed, match="can't be loaded"):
        record.marked_loaded()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("core_partitions", 0),
        ("core_partitions", "x"),
        ("rows", -1),
        ("rows", True),
        ("size_bytes", 1 << 63),
        ("digest", "md5:00"),
        ("digest", None),
        ("digest", []),
        ("replicas", -1),
        ("replicas", 65),
        ("used", 1),
        ("loaded", "yes"),
        ("generation", 0),
        ("url", None),
        ("url", "/data/flights"),
        ("url", "file:///" + "x" * 1024),
        ("url", "file:///data/a b"),
        ("format", 0),
        ("format", "two"),
        ("format", None),
    ],
)
def test_record_with_an_impossible_field_is_damaged(field: str, value: object) -> None:
    fields = json.loads(RECORD.to_bytes())
    fields[field] = value
    with pytest.raises(DamagedRow, match=field):
        SegmentRecord.from_bytes(SEGMENT.key, json.dumps(fields).encode())


def test_record_of_a_newer_version_is_refused() -> None:
    """Whatever else it has: what this version can read of it may mean something else there."""
    fields = {**json.loads(RECORD.to_bytes()), "format": 2}
    for changed in (fields, {"format": 2}, {**fields, "rows": "many"}):
        with pytest.raises(NewerRow, match=f"records/{TEXT} has format 2, this version reads 1: install a newer"):
            SegmentRecord.from_bytes(SEGMENT.key, json.dumps(changed).encode())
    assert SegmentRecord.from_bytes(SEGMENT.key, json.dumps({**fields, "format": 1}).encode()) == RECORD


@given(st.binary(max_size=200))
def test_bytes_that_are_no_record_raise_only_errors_of_the_catalog(packed: bytes) -> None:
    with pytest.raises(DamagedRow):
        SegmentRecord.from_bytes(SEGMENT.key, packed)


@given(st.text(max_size=120))
def test_text_that_is_no_segment_raises_only_errors_of_the_catalog(text: str) -> None:
    try:
        assert str(parse_segment(text)) == text
    except CatalogError:
        return


def test_interval_that_ends_before_it_begins_is_refused() -> None:
    turned = Segment("flights", SegmentId(Interval(APRIL_MS, MARCH_MS), 7, 2))
    with pytest.raises(BadField, match="the end must be later"):
        replace(RECORD, segment=turned)
