"""Every path on which it is promised shows one store: writes, transactions and reads have one order that fits time.

Twice. All keys, as members answer, leader or not. And the strict keys, with fenced reads beside that, at any node, by
its API or out of its vault. (An eventual key may be shown by a member before a strict one of the same transaction is by
a vault; so what a transaction does on both sides is looked at on each side.)

A write whose answer was lost but whose value was seen was done, before it was seen. One that nobody saw, and of which
nothing else can tell, may be left out: most of the cost of lost answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from metastore.requests import Compare, CompareResult, CompareTarget, DeleteRange, Put, Range, Txn
from metastore.results import RangeResult, TxnResult
from tests.sim.checkers.exactly_once import by_request, puts_of
from tests.sim.history import History
from tests.sim.kv_model import KeyValues
from tests.sim.kv_spans import Resolved, inside, rows_of, spans_of
from tests.sim.linearizability import STEPS_MAX, Op, Verdict
from tests.sim.linearizability import check as is_linearizable
from tests.sim.seen import FENCED, Ok, Operation, Path, Unknown

STRICT = (b"s/",)
OWN = b"palisade/"
"""What the cluster writes about itself, and no client has asked for."""


def check(history: History, strict: tuple[bytes, ...] = STRICT, steps_max: int = STEPS_MAX) -> list[str]:
    """Also says so where it gave up: that is nothing that may pass unseen."""
    members = operations_of(history, lambda operation: operation.path not in FENCED)
    everywhere = operations_of(history, lambda operation: True)
    found = []
    for what, ops in (
        ("of all keys", members),
        ("of strict keys, at every node", [part for op in everywhere for part in _strictly(op, strict)]),
    ):
        report = is_linearizable(KeyValues(), without_unseen(ops), steps_max)
        if report.verdict is not Verdict.LINEARIZABLE:
            found.append("\n".join((f"the history {what}: {report.verdict.value}", *report.explanation)))
    return found


def operations_of(history: History, wanted: Any) -> list[Op]:
    """Retries of a request are one operation, from the first question to the first answer."""
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
    answered = replace(result, kvs=users, count=count)
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


# What is strict


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
    return any(start.startswith(prefix) and (not end or prefix < end <= _behind(prefix)) for prefix in strict)


def _behind(prefix: bytes) -> bytes:
    return prefix[:-1] + bytes([prefix[-1] + 1])


def _clipped(op: Op, prefix: bytes) -> Iterator[Op]:
    request, end = op.asked, _behind(prefix)
    if request.limit or request.count_only or not request.range_end:
        return
    if inside(prefix, request.key, request.range_end) and (request.range_end == b"\0" or end <= request.range_end):
        kvs = tuple(kv for kv in op.answered.kvs if kv.key.startswith(prefix))
        asked = replace(request, key=prefix, range_end=end)
        yield replace(op, asked=asked, answered=replace(op.answered, kvs=kvs, count=len(kvs)))


def _taken(op: Op, strict: tuple[bytes, ...]) -> Iterator[Op]:
    """The branch that was taken, if it is known; else both, which no compare of other keys may decide about."""
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
    if success or failure:
        yield replace(op, asked=Txn(tuple(filter(kept, request.compare)), success, failure))


# Answers that were lost


def without_unseen(ops: Iterable[Op]) -> list[Op]:
    """The same question with fewer open operations."""
    ops = list(ops)
    seen: dict[tuple[bytes, bytes], list[tuple[int, int]]] = {}
    for op in ops:
        if op.ended is not None:
            for kv in rows_of(op.answered):
                seen.setdefault((kv.key, kv.value), []).append((kv.mod_revision, op.ended))
    authors: dict[tuple[bytes, bytes], int] = {}
    for op in ops:
        for put in puts_of(op.asked):
            authors[put.key, put.value] = authors.get((put.key, put.value), 0) + 1
    blind = {span for op in ops for span in _blind(op)}
    return [kept for op in ops if (kept := _settled(op, seen, authors, blind)) is not None]


def _settled(
    op: Op,
    seen: dict[tuple[bytes, bytes], list[tuple[int, int]]],
    authors: dict[tuple[bytes, bytes], int],
    blind: set[tuple[bytes, bytes]],
) -> Op | None:
    puts = puts_of(op.asked)
    if op.ended is not None or any(authors[put.key, put.value] > 1 for put in puts):
        return op
    told = [place for put in puts for place in seen.get((put.key, put.value), [])]
    if told:
        revision, ended = max(mod for mod, _ in told), min(end for _, end in told)
        return replace(op, ended=max(ended, op.began + 1), answered=Resolved(revision))
    keys = [put.key for put in puts]
    if _only_puts(op.asked) and not any(inside(key, start, end) for key in keys for start, end in blind):
        return None
    return op


def _only_puts(request: Any) -> bool:
    if isinstance(request, Txn):
        return all(map(_only_puts, (*request.success, *request.failure)))
    return isinstance(request, Range) or (isinstance(request, Put) and not request.ignore_value)


def _blind(op: Op) -> Iterator[tuple[bytes, bytes]]:
    """Keys of which its answer depends on what is there without showing that."""
    match op.asked:
        case Range(count_only=True) | Range(keys_only=True):
            yield op.asked.key, op.asked.range_end
        case DeleteRange(prev_kv=False) if op.answered is not None:
            yield op.asked.key, op.asked.range_end
        case Put(ignore_value=True):
            yield op.asked.key, b""
        case Txn():
            yield from _blind_in(op.asked, op.answered)


def _blind_in(request: Txn, answered: Any) -> Iterator[tuple[bytes, bytes]]:
    """What a compare has seen is shown by a read of its key in the branch that was taken, or by its success: it is
    that value, or there is no such key."""
    known = isinstance(answered, TxnResult)
    taken = (request.success if answered.succeeded else request.failure) if known else ()
    shown = {part.key for part in taken if isinstance(part, Range) and not (part.keys_only or part.count_only)}
    writes = {part.key for part in taken if not isinstance(part, Range | Txn)}
    for compare in request.compare:
        if known and answered.succeeded and compare.result is CompareResult.EQUAL and _names_it(compare):
            continue
        if compare.range_end or compare.key not in shown or compare.key in writes:
            yield compare.key, compare.range_end
    for part in (*request.success, *request.failure):
        inner = Op(0, 0 if known else None, part, answered if known else None)
        if isinstance(part, Txn):
            yield from ((start, end) for start, end in spans_of(part))
        elif not isinstance(part, Range):
            yield from _blind(inner)


def _names_it(compare: Compare) -> bool:
    return not compare.range_end and (compare.target is CompareTarget.VALUE or not compare.operand)
