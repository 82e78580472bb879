"""What a request and its result show about keys: versions read, keys found absent, writes. Pure.

A recorded history (`recorded_history.py`) keeps these instead of requests and results, with digests instead of values.
Only what follows with certainty is derived; a result that shows less than a state (a count, a page in another order)
contributes less.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import xxhash

from palisade.metastore.requests import (
    Compare,
    CompareResult,
    CompareTarget,
    DeleteRange,
    Put,
    Range,
    SortOrder,
    SortTarget,
    Txn,
)
from palisade.metastore.results import DeleteRangeResult, KeyValue, PutResult, RangeResult, TxnResult

ROWS_MAX = 1_000
"""Of one request; the range that they cover ends after the last one."""


class Wrote(NamedTuple):
    """A put of `key`, or a delete of [key, range_end). `digest`: of the value; None if it is unknown."""

    key: bytes
    range_end: bytes
    delete: bool
    digest: int | None


class Saw(NamedTuple):
    """A version of a key. 0 and None: not shown. `before`: at the revision before that of the operation."""

    key: bytes
    mod_revision: int
    create_revision: int
    version: int
    digest: int | None
    before: bool


class Covered(NamedTuple):
    """Of [key, range_end) every key is among the versions seen, or was absent. `before` as in `Saw`."""

    key: bytes
    range_end: bytes
    before: bool


@dataclass(slots=True)
class Effects:
    wrote: list[Wrote] = field(default_factory=list)
    saw: list[Saw] = field(default_factory=list)
    covered: list[Covered] = field(default_factory=list)


def digest_of(value: bytes) -> int:
    """63 bits, so that it fits a signed column."""
    return xxhash.xxh3_64_intdigest(value) >> 1


def possible(request: Any) -> Effects:
    """Of a write without a result: each of its writes may have been executed."""
    return Effects(list(_writes(request)))


def _writes(request: Any) -> Iterator[Wrote]:
    match request:
        case Put():
            yield Wrote(request.key, b"", False, None if request.ignore_value else digest_of(request.value))
        case DeleteRange():
            yield Wrote(request.key, request.range_end, True, None)
        case Txn():
            for part in (*request.success, *request.failure):
                yield from _writes(part)


def effects_of(request: Any, result: Any) -> Effects:
    found = Effects()
    _add(found, request, result, getattr(result, "revision", 0), has_written(request, result))
    return found


def has_written(request: Any, result: Any) -> bool:
    """Whether it made a revision."""
    match result:
        case PutResult():
            return True
        case DeleteRangeResult():
            return result.deleted > 0
        case TxnResult():
            return any(has_written(part, each) for part, each in _taken(request, result))
    return False


def _taken(request: Txn, result: TxnResult) -> Iterator[tuple[Any, Any]]:
    return zip(request.success if result.succeeded else request.failure, result.results, strict=True)


def _add(found: Effects, request: Any, result: Any, revision: int, writes: bool) -> None:
    """`writes`: the whole operation made `revision`, so what it read before its first write is of the one before."""
    match request, result:
        case Put(), PutResult():
            if request.prev_kv:
                _add_state(found, (request.key, b""), _rows(result.prev_kv), revision, writes)
            found.wrote.extend(_writes(request))
        case DeleteRange(), DeleteRangeResult():
            _add_delete(found, request, result, revision, writes)
        case Range(), RangeResult():
            _add_range(found, request, result, revision, writes)
        case Txn(), TxnResult():
            if result.succeeded and not found.wrote:
                _add_compares(found, request.compare, writes)
            for part, each in _taken(request, result):
                _add(found, part, each, revision, writes)


def _rows(kv: KeyValue | None) -> tuple[KeyValue, ...]:
    return () if kv is None else (kv,)


def _add_delete(found: Effects, request: DeleteRange, result: DeleteRangeResult, revision: int, writes: bool) -> None:
    if request.prev_kv or not result.deleted:
        _add_state(found, (request.key, request.range_end), result.prev_kvs, revision, writes)
    if request.prev_kv:
        found.wrote.extend(Wrote(kv.key, b"", True, None) for kv in result.prev_kvs)
    elif result.deleted:
        found.wrote.append(Wrote(request.key, request.range_end, True, None))


def _add_state(
    found: Effects, span: tuple[bytes, bytes], rows: tuple[KeyValue, ...], revision: int, writes: bool
) -> None:
    """All keys of `span`. After a write of the same operation, an absent key may be its own deletion."""
    if not found.wrote:
        found.covered.append(Covered(*span, writes))
    _add_rows(found, rows, revision, writes, has_values=True)


def _add_rows(found: Effects, rows: tuple[KeyValue, ...], revision: int, writes: bool, *, has_values: bool) -> None:
    found.saw.extend(
        Saw(
            kv.key,
            kv.mod_revision,
            kv.create_revision,
            kv.version,
            digest_of(kv.value) if has_values else None,
            writes and kv.mod_revision < revision,
        )
        for kv in rows
    )


def _add_range(found: Effects, request: Range, result: RangeResult, revision: int, writes: bool) -> None:
    rows = result.kvs[:ROWS_MAX]
    _add_rows(found, rows, revision, writes, has_values=not request.keys_only)
    end = _covered_until(request, result, len(rows))
    if end is not None and not found.wrote:
        found.covered.append(Covered(request.key, end, writes))


def _covered_until(request: Range, result: RangeResult, kept: int) -> bytes | None:
    """The end of the part of the range that the rows show completely; None if there is no such part."""
    if any((
        request.min_mod_revision, request.max_mod_revision, request.min_create_revision, request.max_create_revision
    )):  # fmt: skip
        return None
    if request.count_only:
        return request.range_end if not result.count else None
    if not result.more and kept == len(result.kvs):
        return request.range_end
    ascending = request.sort_order is not SortOrder.DESCEND and request.sort_target is SortTarget.KEY
    return result.kvs[kept - 1].key + b"\0" if kept and ascending else None


def _add_compares(found: Effects, compares: tuple[Compare, ...], writes: bool) -> None:
    """A compare that held and names a revision or an absent key is a read of it."""
    numbers = (CompareTarget.MOD, CompareTarget.CREATE, CompareTarget.VERSION)
    for each in compares:
        if each.result is not CompareResult.EQUAL or each.target not in numbers or type(each.operand) is not int:
            continue
        if each.operand == 0:
            found.covered.append(Covered(each.key, each.range_end, writes))
        elif each.target is CompareTarget.MOD and not each.range_end:
            found.saw.append(Saw(each.key, each.operand, 0, 0, None, writes))
