"""The simulated clients of HTTP and of the stream use the product's own servers, and parse their responses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from palisade.api.http.v1_json_requests import delete_from, put_from, range_from, txn_from
from palisade.metastore.requests import (
    Compare,
    CompareResult,
    CompareTarget,
    DeleteRange,
    Put,
    Range,
    RequestId,
    SortOrder,
    SortTarget,
    Txn,
)
from palisade.metastore.results import DeleteRangeResult, KeyValue, PutResult, RangeResult, TxnResult
from palisade.wire import json_results as shapes
from tests.sim.http_clients import fenced_question, form_of, question, result_from
from tests.sim.run import run_seed
from tests.sim.world import Settings

KV = KeyValue(b"s/a", b"1", 2, 3, 2, 7)
PUT, DELETE, RANGE = Put(b"s/a", b"1", prev_kv=True), DeleteRange(b"s/a", prev_kv=True), Range(b"q", b"t", revision=4)
ABSENT = Compare(b"s/a", CompareTarget.VERSION, CompareResult.EQUAL, 0)
TXN = Txn((ABSENT,), (PUT, Put(b"q/a", b"1")), (Range(b"s/a"),))
NEWER = Compare(b"s/a", CompareTarget.MOD, CompareResult.GREATER, 4, b"s/d")
KEPT = Put(b"s/a", prev_kv=True, ignore_value=True, ignore_lease=True)
OTHER = Compare(b"s/a", CompareTarget.VALUE, CompareResult.NOT_EQUAL, b"7")
NESTED = Txn((NEWER,), (Range(b"s/a", b"s/d"), KEPT), (Txn((OTHER,), (DeleteRange(b"s/a", b"s/d"),), (PUT,)),))
PAGE = Range(b"q", b"t", 2, sort_order=SortOrder.DESCEND, sort_target=SortTarget.MOD, keys_only=True)
COUNT = Range(b"q", b"t", revision=4, serializable=True, count_only=True)


@pytest.mark.parametrize(
    ("request_", "read"),
    [
        *((PUT, put_from), (KEPT, put_from), (DELETE, delete_from), (TXN, txn_from), (NESTED, txn_from)),
        *((RANGE, range_from), (PAGE, range_from), (COUNT, range_from)),
    ],
)
def test_encoded_request_is_parsed_by_the_server(request_: Any, read: Any) -> None:
    assert read(form_of(request_)[1]) == request_


@pytest.mark.parametrize(
    ("request_", "result", "shape"),
    [
        (PUT, PutResult(5, KV), shapes.put_shape),
        (PUT, PutResult(5), shapes.put_shape),
        (DELETE, DeleteRangeResult(5, 1, (KV,)), shapes.delete_shape),
        (RANGE, RangeResult(5, (KV,), False, 1), shapes.range_shape),
        (TXN, TxnResult(5, True, (PutResult(5, KV), PutResult(5))), shapes.txn_shape),
        (TXN, TxnResult(5, False, (RangeResult(5, (KV,), False, 1),)), shapes.txn_shape),
        (NESTED, TxnResult(5, False, (TxnResult(5, True, (DeleteRangeResult(5, 2, (KV,)),)),)), shapes.txn_shape),
    ],
)
def test_decoded_response_equals_the_result(request_: Any, result: Any, shape: Any) -> None:
    assert result_from(request_, shape(result)) == result


def test_writes_carry_request_ids_and_reads_do_not() -> None:
    assert b"Idempotency-Key: http/7\r\n" in question(PUT, RequestId("http", 7))
    assert b"Idempotency" not in question(RANGE, None)
    assert fenced_question(Range(b"s/a")).startswith(b"GET /v1/fenced/s/a HTTP/1.1\r\n")


def test_clients_of_every_kind_are_answered_in_one_run() -> None:
    """Issue 5, "mixed clients": by HTTP with the real server, by the stream with the real client."""
    outcome = run_seed(4, "calm", settings=replace(Settings.of(4), http=True))
    assert not outcome.violation, outcome.violation
    for row in ("client http http Put: Ok", "client http fenced-api Range: Ok", "client stream Put: Ok"):
        assert outcome.coverage.get(row), row
    assert outcome.coverage.get("watch over the stream: delivered")
