"""Every path with that promise shows one store: writes, transactions and reads have one order that is consistent with
time.

Checked twice. All keys, as members respond, leader or not. And the strict keys, with fenced reads in addition, at any
node, by its API or from its vault. (A member may serve an eventual key before a vault serves a strict one of the same
transaction; so a transaction that affects both is checked on each side.)

A transaction that compares keys on both sides may fail on one side because of a key on the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from palisade.metastore.requests import DeleteRange, Put, Range, Txn, prefix_end
from palisade.metastore.results import KeyValue, RangeResult, TxnResult
from tests.sim.checkers.exactly_once import by_request
from tests.sim.history import History
from tests.sim.kv_model import KeyValues, absent, present
from tests.sim.kv_spans import Resolved, spans_of
from tests.sim.linearizability import STEPS_MAX, Op, Verdict
from tests.sim.linearizability import check as is_linearizable
from tests.sim.lost_answers import without_unseen
from tests.sim.seen import FENCED, Ok, Operation, Path, Unknown
from tests.sim.truth import Truth
from tests.support.store_rules import Undecided, inside

STRICT = (b"s/",)
OWN = b"palisade/"
"""The cluster's own keys, which no client has written."""


def check(history: History, strict: tuple[bytes, ...] = STRICT, steps_max: int = STEPS_MAX) -> list[str]:
    """Also reports if it gave up: that must not pass unnoticed."""
    first = restored(history)
    members = operations_of(history, lambda operation: operation.path not in FENCED)
    everywhere = operations_of(history, lambda operation: True)
    found = []
    for what, ops in (
        ("of all keys", members),
        ("of strict keys, at every node", [part for op in everywhere for part in _strictly(op, strict)]),
    ):
        report = is_linearizable(KeyValues(first=first), without_unseen(ops), steps_max)
        if report.verdict is not Verdict.LINEARIZABLE:
            found.append("\n".join((f"the history {what}: {report.verdict.value}", *report.explanation)))
    return found


def restored(history: History) -> dict[bytes, KeyValue]:
    """The initial values of the clients' keys: those in the backup with which the history begins."""
    truth = Truth(history)
    found = {}
    for key in truth.keys:
        changed, kv = truth.changed(key, truth.base), truth.at(key, truth.base)
        if changed and not key.startswith(OWN):
            found[key] = absent(key, changed) if kv is None else present(key, kv.value, changed, kv.lease)
    return found


def operations_of(history: History, wanted: Any) -> list[Op]:
    """Retries of a request are one operation, from the first request to the first response."""
    found = [_written(attempts) for attempts in by_request(history) if isinstance(attempts[0].request, WRITES)]
    found += [_read(each) for each in history.operations() if _is_promised(each) and wanted(each)]
    return [op for op in found if op is not None]


WRITES = (Put, DeleteRange, Txn)


def _written(attempts: list[Operation]) -> Op | None:
    first = attempts[0]
    by = f"{first.client}, operation {first.number}"
    answers = [each for each in attempts if isinstance(each.outcome, Ok) and each.ended is not None]
    if answers:
        answer = min(answers, key=lambda each: each.ended or first.began)
        assert answer.ended is not None
        return Op(first.began.order, answer.ended.order, first.request, answer.result, by)
    for attempt in attempts:
        if isinstance(attempt.outcome, Unknown) and attempt.outcome.revision:
            return Op(first.began.order, None, first.request, Resolved(attempt.outcome.revision), by)
    if all(attempt.refused for attempt in attempts):
        return None
    return Op(first.began.order, None, first.request, None, by)


def _read(operation: Operation) -> Op:
    assert operation.ended is not None
    by = f"{operation.client}, {operation.path.value} at {operation.node}, operation {operation.number}"
    result: RangeResult = operation.result
    users = tuple(kv for kv in result.kvs if not kv.key.startswith(OWN))
    count = result.count - len(result.kvs) + len(users)
    revision = 0 if operation.path in FENCED else result.revision
    answered = replace(result, kvs=users, count=count, revision=revision)
    return Op(operation.began.order, operation.ended.order, operation.request, answered, by)


def _is_promised(operation: Operation) -> bool:
    request, result = operation.request, operation.result
    if not isinstance(request, Range) or not isinstance(result, RangeResult):
        return False
    if operation.path is Path.LOCAL or request.serializable or operation.of_the_past:
        return False
    plain = Range(
        request.key, request.range_end, request.limit, keys_only=request.keys_only, count_only=request.count_only
    )
    is_default = operation.path in FENCED and any(not kv.create_revision for kv in result.kvs)
    return request == plain and not is_default


# Strict keys


def _strictly(op: Op, strict: tuple[bytes, ...]) -> Iterator[Op]:
    """The part of it that is about strict keys."""
    if all(_is_inside(start, end, strict) for start, end in spans_of(op.asked)):
        yield op
        return
    match op.asked:
        case Range():
            for prefix in strict:
                yield from _clipped(op, prefix)
        case DeleteRange():
            return
        case Txn():
            yield from _taken(op, strict)


def _is_inside(start: bytes, end: bytes, strict: tuple[bytes, ...]) -> bool:
    return any(start.startswith(prefix) and (not end or prefix < end <= prefix_end(prefix)) for prefix in strict)


def _clipped(op: Op, prefix: bytes) -> Iterator[Op]:
    request, end = op.asked, prefix_end(prefix)
    if request.limit or request.count_only or not request.range_end:
        return
    if inside(prefix, request.key, request.range_end) and (request.range_end == b"\0" or end <= request.range_end):
        kvs = tuple(kv for kv in op.answered.kvs if kv.key.startswith(prefix))
        asked = replace(request, key=prefix, range_end=end)
        yield replace(op, asked=asked, answered=replace(op.answered, kvs=kvs, count=len(kvs)))


def _taken(op: Op, strict: tuple[bytes, ...]) -> Iterator[Op]:
    """The branch that was taken, if known; else both, if no compare of other keys may decide it."""
    request, answered = op.asked, op.answered

    def kept(part: Any) -> bool:
        return all(_is_inside(start, end, strict) for start, end in spans_of(part))

    if isinstance(answered, TxnResult):
        branch = request.success if answered.succeeded else request.failure
        both = [(part, result) for part, result in zip(branch, answered.results, strict=True) if kept(part)]
        compare = request.compare if all(map(kept, request.compare)) else ()
        parts, results = tuple(part for part, _ in both), tuple(result for _, result in both)
        succeeded = answered.succeeded or not compare
        asked = Txn(compare, parts if succeeded else (), () if succeeded else parts)
        if parts:
            yield replace(op, asked=asked, answered=TxnResult(answered.revision, succeeded, results))
        return
    success, failure = tuple(filter(kept, request.success)), tuple(filter(kept, request.failure))
    compare = tuple(filter(kept, request.compare))
    kind = Txn if len(compare) == len(request.compare) else Undecided
    if success or failure:
        yield replace(op, asked=kind(compare, success, failure))
