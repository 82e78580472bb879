"""Writes without a response that a history may be judged without: the same question with fewer open operations. Pure.

A write without a response whose value was read was executed, before it was read. One that was never read may be
dropped, unless some result depends on its effect without showing it: a count, keys without values, keys after the end
of a page, a compare of a key that is not read as well (`_blind`). Lost responses cause most of the cost of a check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from palisade.metastore.requests import Compare, CompareResult, CompareTarget, DeleteRange, Put, Range, Txn
from palisade.metastore.results import PutResult, TxnResult
from tests.sim.checkers.durable import put_by
from tests.sim.checkers.exactly_once import all_puts_of, puts_of
from tests.sim.kv_order import written_by
from tests.sim.kv_spans import Resolved, rows_of, spans_of
from tests.sim.linearizability import Op
from tests.support.store_rules import inside

Value = tuple[bytes, bytes]
Span = tuple[bytes, bytes]
Version = tuple[bytes, int]
"""A key at one of its mod revisions."""
Compares = list[tuple[Compare, bool]]
"""Each with whether all compares of the transaction held."""


def without_unseen(ops: Iterable[Op]) -> list[Op]:
    """In order."""
    ops = list(ops)
    seen: dict[Value, list[tuple[int, int]]] = {}
    revisions: set[Version] = set()
    kept, perhaps = _keepers(ops)
    for op in ops:
        if op.ended is not None:
            for kv in rows_of(op.answered):
                written = kv.key not in perhaps and (kv.key, kv.mod_revision) not in kept
                revision = kv.mod_revision if written else 0
                seen.setdefault((kv.key, kv.value), []).append((revision, op.ended))
                revisions.add((kv.key, kv.mod_revision))
            for value in _values_met(op):
                seen.setdefault(value, []).append((0, op.ended))
            revisions.update(written_by(op))
    authors: dict[Value, int] = {}
    for op in ops:
        for put in puts_of(op.asked):
            authors[put.key, put.value] = authors.get((put.key, put.value), 0) + 1
    unsure = {number for number, op in enumerate(ops) if _is_doubtful(op, authors)}
    settled = [op if number in unsure else _settled(op, seen) for number, op in enumerate(ops)]
    unseen = _unseen(settled, unsure, lambda op: set(_blind(op, revisions)))
    return [op for number, op in enumerate(settled) if number not in unseen]


def _keepers(ops: list[Op]) -> tuple[set[Version], set[bytes]]:
    """Writes that keep an earlier value (`ignore_value`): versions, and keys of lost responses."""
    kept: set[Version] = set()
    perhaps: set[bytes] = set()
    for op in ops:
        revision = getattr(op.answered, "revision", 0)
        kept |= {(put.key, revision) for put in put_by(op.asked, op.answered) if put.ignore_value}
        if op.answered is None or isinstance(op.answered, Resolved):
            perhaps |= {put.key for put in all_puts_of(op.asked) if put.ignore_value}
    return kept, perhaps


def _is_doubtful(op: Op, authors: dict[Value, int]) -> bool:
    """One of its values does not identify this operation as its writer."""
    return op.ended is None and any(authors[put.key, put.value] > 1 for put in puts_of(op.asked))


def _settled(op: Op, seen: dict[Value, list[tuple[int, int]]]) -> Op:
    """With an end, at the time at which it was read."""
    if op.ended is not None:
        return op
    places = [place for put in puts_of(op.asked) for place in seen.get((put.key, put.value), [])]
    if not places:
        return op
    revision, ended = max(mod for mod, _ in places), min(end for _, end in places)
    return replace(op, ended=max(ended, op.began + 1), answered=Resolved(revision))


def _unseen(ops: list[Op], unsure: set[int], blind_of: Callable[[Op], set[Span]]) -> set[int]:
    """Their numbers: their values were never read, and no result of the kept ones depends on them unseen."""
    unseen = {number for number, op in enumerate(ops) if op.ended is None and _only_puts(op.asked)} - unsure
    blind = {span for number, op in enumerate(ops) if number not in unseen for span in blind_of(op)}
    while stay := {number for number in unseen if _meets(ops[number], blind)}:
        unseen -= stay
        blind = {span for number in stay for span in blind_of(ops[number])}
    return unseen


def _meets(op: Op, spans: set[Span]) -> bool:
    return any(inside(put.key, start, end) for put in puts_of(op.asked) for start, end in spans)


def _only_puts(request: Any) -> bool:
    if isinstance(request, Txn):
        return all(map(_only_puts, (*request.success, *request.failure)))
    return isinstance(request, Range) or (isinstance(request, Put) and not request.ignore_value)


def _values_met(op: Op) -> Iterator[Value]:
    """The values of keys, by compares with values that held."""
    if isinstance(op.answered, TxnResult):
        for compare, held in _path_of(op.asked, op.answered)[0]:
            same = held and compare.result is CompareResult.EQUAL and not compare.range_end
            if same and isinstance(compare.operand, bytes):
                yield compare.key, compare.operand


def _blind(op: Op, revisions: set[Version]) -> Iterator[Span]:
    """Keys on which its result depends without showing them. `revisions`: of a key whose writer or row is known."""
    match op.asked:
        case Range(count_only=True) | Range(keys_only=True):
            yield op.asked.key, op.asked.range_end
        case Range() if op.answered is not None and op.answered.more:
            yield op.answered.kvs[-1].key + b"\0", op.asked.range_end
        case DeleteRange(prev_kv=False) if op.answered is not None:
            yield op.asked.key, op.asked.range_end
        case Put() if _keeps(op.asked) and not (isinstance(op.answered, PutResult) and op.asked.prev_kv):
            yield op.asked.key, b""
        case Txn() if isinstance(op.answered, TxnResult):
            yield from _blind_on_path(*_path_of(op.asked, op.answered), revisions)
        case Txn():
            yield from _compared_in(op.asked)
            for part in (*op.asked.success, *op.asked.failure):
                yield from _blind(Op(0, None, part), revisions)


def _keeps(put: Put) -> bool:
    """It keeps an existing value, so there must be one."""
    return put.ignore_value or put.ignore_lease


def _compared_in(request: Txn) -> Iterator[Span]:
    yield from ((compare.key, compare.range_end) for compare in request.compare)


def _path_of(request: Txn, answered: TxnResult) -> tuple[Compares, list[Op]]:
    """The compares and operations, in nested transactions as well."""
    compares: Compares = [(compare, answered.succeeded) for compare in request.compare]
    done: list[Op] = []
    for part, result in zip(request.success if answered.succeeded else request.failure, answered.results, strict=True):
        if isinstance(part, Txn):
            more, steps = _path_of(part, result)
            compares += more
            done += steps
        else:
            done.append(Op(0, 0, part, result))
    return compares, done


def _blind_on_path(compares: Compares, done: list[Op], revisions: set[Version]) -> Iterator[Span]:
    """A compare is shown by a read of its key in the branch that was taken, before it writes there, or by its success:
    it is that value or revision, or there is no such key."""
    shown: set[Span] = set()
    written: list[Span] = []
    for step in done:
        (span,) = spans_of(step.asked)
        if _shows(step) and not any(inside(start, *span) or inside(span[0], start, end) for start, end in written):
            shown.add(span)
        if not isinstance(step.asked, Range):
            written.append(span)
        yield from _blind(step, revisions)
    for compare, held in compares:
        if held and compare.result is CompareResult.EQUAL and _names_it(compare, revisions):
            continue
        if (compare.key, compare.range_end) not in shown:
            yield compare.key, compare.range_end


def _shows(step: Op) -> bool:
    """All rows of its range, as they were before it."""
    request = step.asked
    if isinstance(request, Range):
        return not (request.keys_only or request.count_only or request.limit)
    return bool(request.prev_kv)


def _names_it(compare: Compare, revisions: set[Version]) -> bool:
    if compare.range_end:
        return False
    known = compare.target is CompareTarget.MOD and (compare.key, compare.operand) in revisions
    return known or compare.target is CompareTarget.VALUE or not compare.operand
