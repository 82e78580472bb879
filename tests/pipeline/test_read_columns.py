"""Option `columns`: which columns a read has, refused at load() with those that it can have (issue 18)."""

from __future__ import annotations

import re

import pytest

from palisade.pipeline.errors import BadOption
from palisade.pipeline.options import read_options
from palisade.pipeline.read_columns import needs_values, schema_of

NODE = {"endpoints": "127.0.0.1:7601"}
JSON = {"valueSchema": "delay BIGINT"}
STATE = "key, value, revision, create_revision, version, lease"
HISTORY = "key, value, revision, sub, create_revision, version, lease, timestamp, op, previous_value"


def schema(options: dict[str, str], *, stream: bool = False) -> str:
    return schema_of(read_options(NODE | options), stream=stream)


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({}, STATE),
        ({"history": "true"}, HISTORY),
        (JSON, f"{STATE}, rejected"),
        (JSON | {"mode": "failfast"}, STATE),
        ({"columns": " revision,key ,"}, "revision, key"),
        ({"columns": ""}, STATE),
    ],
)
def test_columns_are_all_or_those_of_the_option_in_their_order(options: dict[str, str], columns: str) -> None:
    assert [field.split(" ")[0] for field in re.split(r", (?![^<]*>)", schema(options))] == columns.split(", ")


def test_types_are_those_of_the_options() -> None:
    assert schema({"columns": "op,timestamp,sub,value", "history": "true", "valueType": "string"}) == (
        "op STRING, timestamp TIMESTAMP, sub BIGINT, value STRING"
    )
    assert schema(JSON | {"columns": "rejected,value"}) == "rejected BINARY, value STRUCT<delay BIGINT>"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"columns": "key,origin"}, f"no column 'origin'; it has {STATE}$"),
        ({"columns": "op"}, f"no column 'op'; it has {STATE}$"),
        ({"columns": "Key"}, "no column 'Key'"),
        ({"columns": "rejected,value"}, "no column 'rejected'"),
        ({"columns": "origin", "history": "true"}, f"it has {HISTORY}$"),
        ({"columns": "origin"} | JSON, f"it has {STATE}, rejected$"),
        ({"columns": "key,revision,key"}, "'key' twice"),
        ({"columns": "key,rejected"} | JSON, "add value"),
    ],
)
def test_bad_columns_are_refused_with_the_valid_ones(options: dict[str, str], reason: str) -> None:
    with pytest.raises(BadOption, match=reason):
        schema(options)


def test_stream_that_may_have_a_state_needs_the_column_that_marks_it() -> None:
    start = {"startingRevision": "latest"}
    snapshots = start | {"onCompacted": "snapshot"}
    assert schema(start | {"columns": "key"}, stream=True) == "key STRING"
    assert schema(snapshots | {"columns": "op,key"}, stream=True) == "op STRING, key STRING"
    with pytest.raises(BadOption, match="add op"):
        schema(snapshots | {"columns": "key"}, stream=True)


@pytest.mark.parametrize(("columns", "needed"), [("", True), ("key,value", True), ("previous_value", True),
                                                 ("key,revision,op,timestamp", False)])  # fmt: skip
def test_values_are_needed_for_columns_made_of_them(columns: str, needed: bool) -> None:
    assert needs_values(read_options(NODE | {"columns": columns}).columns) is needed
