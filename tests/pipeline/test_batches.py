"""Rows as Arrow batches: types, JSON values, rejected values."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palisade.pipeline.batches import Columns
from palisade.pipeline.errors import BadValue
from palisade.pipeline.vault_rows import VaultRows
from palisade.vault.change import HEADER
from palisade.wire.scan_pages import pack_change, pack_rows
from tests.support.slice_rows import page_of

STRUCT = pa.struct([("origin", pa.string()), ("delay", pa.int64())])


def columns(value: pa.DataType, value_type: str, *, failfast: bool = False, key: pa.DataType | None = None) -> Columns:
    fields = [("key", key or pa.string()), ("value", value), ("revision", pa.int64()), ("version", pa.int64())]
    rejected = [("rejected", pa.binary())] if value_type == "json" and not failfast else []
    return Columns(pa.schema(fields + rejected), value_type, failfast)


def row(value: bytes, key: bytes = b"k", version: int = 2) -> bytes:
    return HEADER.pack(7, 5, version, 0, len(key), len(value)) + key + value


@settings(deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=12), st.sampled_from([b'{"origin": "JFK", "delay": 3}', b"null", b"{}"]))))
def test_each_json_value_is_decoded_or_rejected_and_never_both(values: list[bytes]) -> None:
    batch = columns(STRUCT, "json").of_rows(pack_rows(map(row, values))).to_pylist()
    assert len(batch) == len(values)
    for found, value in zip(batch, values, strict=True):
        if found["rejected"] is not None:
            assert (found["rejected"], found["value"]) == (value, None)
        elif found["value"] is None:
            assert json.loads(value) is None
        else:
            assert {name: json.loads(value).get(name) for name in ("origin", "delay")} == found["value"]


@pytest.mark.parametrize(
    "value", [b"[1]", b"1", b'{"delay": "late"}', b'{"delay": 99999999999999999999}', b"\xff", b""]
)
def test_value_that_does_not_match_fails_fast_with_its_key(value: bytes) -> None:
    good = row(b'{"delay": 1}', b"good")
    with pytest.raises(BadValue, match="'bad' does not match valueSchema"):
        columns(STRUCT, "json", failfast=True).of_rows(good + row(value, b"bad") + good)


def test_text_that_is_not_utf8_is_refused_and_readable_as_binary() -> None:
    with pytest.raises(BadValue, match="valueType=binary"):
        columns(pa.string(), "string").of_rows(row(b"\xff"))
    with pytest.raises(BadValue, match="keyType=binary"):
        columns(pa.binary(), "binary").of_rows(row(b"v", b"\xff"))
    batch = columns(pa.binary(), "binary", key=pa.binary()).of_rows(row(b"\xfe", b"\xff"))
    assert batch.to_pylist() == [{"key": b"\xff", "value": b"\xfe", "revision": 7, "version": 2}]


CHANGES = pa.schema(
    [("key", pa.string()), ("value", STRUCT), ("op", pa.string()), ("timestamp", pa.timestamp("us", "UTC")),
     ("previous_value", STRUCT), ("rejected", pa.binary()), ("sub", pa.int64()), ("revision", pa.int64())]
)  # fmt: skip


def test_changes_have_op_time_and_previous_value() -> None:
    page = b"".join(
        [
            pack_change(1_000, 0, row(b'{"delay": 1}'), b""),
            pack_change(2_000, 1, row(b"bad"), row(b'{"delay": 1}')),
            pack_change(3_000, 0, row(b"", version=0), row(b"bad")),
        ]
    )
    found = Columns(CHANGES, "json", False).of_changes(page).to_pylist()
    assert [each["op"] for each in found] == ["put", "put", "delete"]
    assert [each["value"] and each["value"]["delay"] for each in found] == [1, None, None]
    assert [each["previous_value"] and each["previous_value"]["delay"] for each in found] == [None, 1, None]
    assert [each["rejected"] for each in found] == [None, b"bad", None]
    assert [each["timestamp"].timestamp() for each in found] == [1, 2, 3]


def test_column_that_is_not_read_is_not_decoded() -> None:
    """Neither a value that fails in failfast mode, nor a key that is not UTF-8."""
    bad = row(b"bad", b"\xff")
    numbers = Columns(pa.schema([("version", pa.int64())]), "json", True)
    assert numbers.of_rows(bad + bad).to_pylist() == [{"version": 2}] * 2
    change = pack_change(1_000, 3, bad, bad)
    previous = Columns(pa.schema([("previous_value", pa.binary()), ("sub", pa.int64())]), "binary", False)
    assert previous.of_changes(change).to_pylist() == [{"previous_value": b"bad", "sub": 3}]
    ops = Columns(pa.schema([("op", pa.string())]), "json", True)
    assert ops.of_reset(9).to_pylist() == [{"op": "reset"}]
    assert ops.of_snapshot(bad).to_pylist() == [{"op": "snapshot"}]


def test_empty_page_is_an_empty_batch() -> None:
    assert columns(STRUCT, "json").of_rows(b"").num_rows == 0


def test_rows_of_a_vault_make_the_same_batches_as_a_page() -> None:
    bodies = [row(b'{"delay": 1}', b"a"), row(b"bad", b"b")]
    rows = VaultRows(*page_of(bodies))
    found = columns(STRUCT, "json")
    assert found.of_rows(rows).equals(found.of_rows(pack_rows(bodies)))
    changes = Columns(CHANGES, "json", False)
    assert changes.of_snapshot(rows).equals(changes.of_snapshot(pack_rows(bodies)))


def test_snapshot_of_a_stream_has_rows_of_the_state_and_one_that_announces_them() -> None:
    columns = Columns(CHANGES, "json", False)
    nothing = {"timestamp": None, "previous_value": None, "sub": None}
    assert columns.of_snapshot(row(b'{"delay": 1}') + row(b"bad")).to_pylist() == [
        nothing
        | {"key": "k", "op": "snapshot", "revision": 7, "value": {"delay": 1, "origin": None}, "rejected": None},
        nothing | {"key": "k", "op": "snapshot", "revision": 7, "value": None, "rejected": b"bad"},
    ]
    assert columns.of_reset(9).to_pylist() == [
        {"key": None, "value": None, "op": "reset", "rejected": None, "revision": 9} | nothing
    ]
    assert columns.of_snapshot(b"").num_rows == 0
