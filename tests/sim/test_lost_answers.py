"""Dropping lost writes changes no verdict, and keeps those on which a result depends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from palisade.metastore.requests import Compare, CompareResult, CompareTarget, DeleteRange, Put, Range, Txn
from palisade.metastore.results import DeleteRangeResult, KeyValue, PutResult, RangeResult, TxnResult
from tests.sim.kv_model import KeyValues
from tests.sim.kv_spans import Resolved
from tests.sim.linearizability import Op, Verdict, check
from tests.sim.lost_answers import without_unseen
from tests.sim.test_kv_model import answered
from tests.sim.test_linearizability import tiny_histories

A, B = b"a", b"b"
LOST = Op(0, None, Put(A, b"1"))


def txn(compare: Compare, *parts: Any, results: tuple[Any, ...], done: bool = True) -> Op:
    return Op(1, 2, Txn((compare,), parts if done else (), () if done else parts), TxnResult(3, done, results))


def row(key: bytes = A, value: bytes = b"0") -> KeyValue:
    return KeyValue(key, value, 2, 2, 1, 0)


def rows(*kvs: KeyValue) -> RangeResult:
    return RangeResult(2, kvs, False, len(kvs))


SAME = Compare(A, CompareTarget.VALUE, CompareResult.EQUAL, b"1")
SECOND = Compare(A, CompareTarget.MOD, CompareResult.EQUAL, 2)
SAME_B = Compare(B, CompareTarget.VALUE, CompareResult.EQUAL, b"1")
LATER = Compare(A, CompareTarget.MOD, CompareResult.GREATER, 1)
NEW_B, DONE = Put(B, b"2"), PutResult(3)
STAYS = {
    "a count": [Op(1, 2, Range(A, b"c", count_only=True), RangeResult(2, (), False, 0))],
    "keys without values": [Op(1, 2, Range(A, keys_only=True), rows())],
    "a page that is not the last": [Op(1, 2, Range(b"Z", b"c", 1), RangeResult(2, (row(b"Z"),), True, 2))],
    "a delete that shows nothing": [Op(1, 2, DeleteRange(A), DeleteRangeResult(2, 0))],
    "a compare that shows nothing": [txn(LATER, NEW_B, results=(DONE,))],
    "a compare that fails and shows nothing": [txn(SECOND, NEW_B, results=(DONE,), done=False)],
    "a compare that is shown behind a write": [txn(LATER, Put(A, b"2"), Range(A), results=(DONE, rows(row())))],
    "a compare with an unknown revision": [txn(SECOND, NEW_B, results=(DONE,))],
    "a put that keeps the lease": [Op(1, 2, Put(A, b"2", ignore_lease=True), PutResult(3))],
    "a put that keeps the lease, in a transaction": [txn(SAME_B, Put(A, b"2", ignore_lease=True), results=(DONE,))],
    "a lost put that kept the lease": [
        Op(1, None, Put(A, b"2", ignore_lease=True)),
        Op(2, 3, Range(A), rows(row(A, b"2"))),
    ],
    "a lost put that kept the value": [Op(1, None, Put(A, ignore_value=True, prev_kv=True))],
    "a lost compare that is not left out": [
        Op(1, None, Txn((LATER,), (Put(B, b"2"),))),
        Op(2, 3, Range(B, count_only=True), RangeResult(2, (), False, 0)),
    ],
}
GOES = {
    "a read": [Op(1, 2, Range(A), rows(row()))],
    "a page that is the last": [Op(1, 2, Range(A, b"c", 1), rows(row(A)))],
    "a compare that is read as well": [txn(LATER, Range(A), Put(A, b"2"), results=(rows(row()), DONE))],
    "a compare of what is replaced and shown": [
        txn(LATER, Put(A, b"2", prev_kv=True), results=(PutResult(3, row()),)),
    ],
    "a put that keeps the lease of what it shows": [
        Op(1, 2, Put(A, b"2", prev_kv=True, ignore_lease=True), PutResult(3, row())),
    ],
    "a compare with a revision that was shown": [
        Op(1, 2, Range(A), rows(row())),
        txn(SECOND, NEW_B, results=(DONE,)),
    ],
    "a lost compare that is left out": [Op(1, None, Txn((LATER,), (Put(B, b"2"),)))],
}


@pytest.mark.parametrize("name", STAYS)
def test_operations_with_visible_effects_are_kept(name: str) -> None:
    assert LOST in without_unseen([LOST, *STAYS[name]])


@pytest.mark.parametrize("name", GOES)
def test_unseen_unknown_writes_are_dropped(name: str) -> None:
    assert LOST not in without_unseen([LOST, *GOES[name]])


def test_write_seen_by_a_compare_was_executed() -> None:
    met = txn(SAME, Put(A, b"2"), results=(DONE,))
    assert without_unseen([LOST, met])[0] == Op(0, 2, LOST.asked, Resolved(0))


def test_put_that_keeps_a_value_did_not_write_it() -> None:
    """Storm 44: a lost put was assumed to be of the revision in which another one kept its value."""
    keeps = Op(1, 2, Put(A, ignore_value=True), PutResult(4))
    shown = Op(3, 4, Range(A), rows(KeyValue(A, b"1", 2, 4, 2, 0)))
    assert without_unseen([LOST, keeps, shown])[0].answered == Resolved(0)
    assert without_unseen([LOST, replace(keeps, ended=None, answered=None), shown])[0].answered == Resolved(0)
    assert without_unseen([LOST, shown])[0].answered == Resolved(4)


@settings(max_examples=500, deadline=None)
@given(tiny_histories(answered(), 4))
def test_dropped_operations_change_no_verdict(ops: list[Op]) -> None:
    verdict = check(KeyValues(), ops).verdict
    assert check(KeyValues(), without_unseen(ops)).verdict is verdict
    assert verdict is not Verdict.GAVE_UP
