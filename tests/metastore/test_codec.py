"""Commands and results survive encoding, and nothing else is accepted."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palisade.base.errors import by_code
from palisade.metastore.command_codec import decode_command, decode_result, encode_command, encode_result, refusal
from palisade.metastore.errors import Compacted, InvalidRequest, MetastoreError
from palisade.metastore.requests import (
    BeginGeneration,
    Command,
    Compact,
    Compare,
    CompareResult,
    CompareTarget,
    CopyChunk,
    DeleteRange,
    DisarmAlarm,
    EvictResults,
    FoundCluster,
    LeaseExpire,
    LeaseGrant,
    LeaseKeepAlive,
    LeaseRevoke,
    Pin,
    Put,
    Range,
    RequestId,
    SortOrder,
    SortTarget,
    Tick,
    Txn,
    Unpin,
)
from palisade.metastore.results import (
    CompactResult,
    DeleteRangeResult,
    DoneResult,
    KeyValue,
    LeaseResult,
    PinResult,
    PutResult,
    RangeResult,
    TxnResult,
)

KEYS = st.binary(max_size=8)
NUMBERS = st.integers(-(2**63), 2**63 - 1)
PUTS = st.builds(Put, KEYS, KEYS, NUMBERS, st.booleans(), st.booleans(), st.booleans())
DELETES = st.builds(DeleteRange, KEYS, KEYS, st.booleans())
RANGES = st.builds(
    Range, KEYS, KEYS, NUMBERS, NUMBERS, st.sampled_from(SortOrder), st.sampled_from(SortTarget), st.booleans(),
    st.booleans(), st.booleans(), NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.booleans(),
)  # fmt: skip
COMPARES = st.builds(
    Compare, KEYS, st.sampled_from(CompareTarget), st.sampled_from(CompareResult), NUMBERS | KEYS, KEYS
)


def txns(operations: st.SearchStrategy[Any]) -> st.SearchStrategy[Txn]:
    branch = st.lists(operations, max_size=3).map(tuple)
    return st.builds(Txn, st.lists(COMPARES, max_size=2).map(tuple), branch, branch)


OPERATIONS = st.recursive(PUTS | DELETES | RANGES, txns, max_leaves=6)
COMMANDS: st.SearchStrategy[Any] = st.one_of(
    PUTS,
    DELETES,
    txns(OPERATIONS),
    st.builds(Compact, NUMBERS),
    st.builds(LeaseGrant, NUMBERS, NUMBERS),
    st.builds(LeaseRevoke, NUMBERS),
    st.builds(LeaseKeepAlive, NUMBERS),
    st.builds(LeaseExpire, st.lists(NUMBERS, max_size=3).map(tuple)),
    st.builds(EvictResults, NUMBERS),
    st.builds(FoundCluster, st.text(max_size=8)),
    st.builds(BeginGeneration, NUMBERS),
    st.builds(DisarmAlarm),
    st.builds(Tick),
    st.builds(Pin, st.text(max_size=5), NUMBERS, NUMBERS),
    st.builds(Unpin, st.text(max_size=5)),
    st.builds(CopyChunk, KEYS, NUMBERS, KEYS, KEYS, KEYS),
)
IDS = st.none() | st.builds(RequestId, st.text(max_size=5), NUMBERS)


@given(COMMANDS, IDS)
def test_command_round_trips(command: Command, request_id: RequestId | None) -> None:
    assert decode_command(encode_command(command, request_id)) == (command, request_id)


@given(st.binary(max_size=40))
def test_random_bytes_are_a_command_or_refused(noise: bytes) -> None:
    with suppress(InvalidRequest):
        decode_command(noise)


WIRE = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.floats() | st.binary(max_size=4) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=8,
)


@given(st.integers(0, 20), st.lists(WIRE, max_size=12))
def test_random_msgpack_is_a_command_or_refused(number: int, fields: list[Any]) -> None:
    with suppress(InvalidRequest):
        decode_command(msgpack.packb([number, None, *fields]))


def test_plain_read_is_not_a_command() -> None:
    with pytest.raises(InvalidRequest, match="not a command"):
        decode_command(encode_command(Range(b"a")))  # type: ignore[arg-type]


def test_unknown_request_type_cannot_be_encoded() -> None:
    with pytest.raises(TypeError, match="int is not a command"):
        encode_command(5)  # type: ignore[arg-type]


KV = KeyValue(b"a", b"1", 2, 3, 4, 5)


@pytest.mark.parametrize(
    "result",
    [
        PutResult(7),
        PutResult(7, KV),
        DeleteRangeResult(7, 2, (KV, KV)),
        RangeResult(7, (KV,), True, 9),
        TxnResult(7, False, (PutResult(7), TxnResult(7, True, (RangeResult(7, (), False, 0),)))),
        CompactResult(7, 3),
        LeaseResult(7, 5, 10_000),
        DoneResult(7, 2),
        PinResult(7, 3, 1000),
    ],
)
def test_result_round_trips_as_tuples_or_lists(result: Any) -> None:
    wire = encode_result(result)
    assert decode_result(wire) == result
    assert decode_result(msgpack.unpackb(msgpack.packb(wire))) == result


def test_refusal_round_trips() -> None:
    for code, kind in by_code(MetastoreError).items():
        with pytest.raises(kind, match="why") as refused:
            decode_result(refusal(kind("why")))
        assert refused.value.code == code
    with pytest.raises(Compacted) as compacted:
        decode_result(refusal(Compacted("gone", 17)))
    assert compacted.value.minimal_revision == 17


def test_refusal_of_a_newer_version_decodes_as_refusal() -> None:
    with pytest.raises(MetastoreError, match="unheard of"):
        decode_result((0, "new-code", "unheard of", 0))


def test_plain_put_is_small_on_the_wire() -> None:
    assert len(encode_command(Put(b"k" * 20, b"v" * 100))) == 3 + 22 + 102
