"""The keys of an operation, and the groups of keys that no operation connects (Lowe's partitioning)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from palisade.metastore.requests import Put, Txn
from palisade.metastore.results import KeyValue, RangeResult, TxnResult
from tests.sim.linearizability import Op
from tests.support.store_rules import inside


@dataclass(frozen=True, slots=True)
class Resolved:
    """The outcome of a write without a response that is known to be committed at `revision`."""

    revision: int


def spans_of(request: Any) -> Iterator[tuple[bytes, bytes]]:
    """Every key and range that a request reads or writes."""
    if isinstance(request, Txn):
        for part in (*request.compare, *request.success, *request.failure):
            yield from spans_of(part)
    else:
        yield request.key, request.range_end if not isinstance(request, Put) else b""


def steps_of(request: Any, result: Any) -> Iterator[tuple[Any, Any]]:
    """The executed operations in order, each with its result. None of a transaction whose result is not known."""
    if not isinstance(request, Txn):
        yield request, result
    elif isinstance(result, TxnResult):
        branch = request.success if result.succeeded else request.failure
        for part, answered in zip(branch, result.results, strict=True):
            yield from steps_of(part, answered)


def rows_of(result: Any) -> Iterator[KeyValue]:
    """Every version of a key in a result."""
    match result:
        case RangeResult():
            yield from result.kvs
        case TxnResult():
            for part in result.results:
                yield from rows_of(part)
        case None | Resolved():
            return
        case _:
            if getattr(result, "prev_kv", None) is not None:
                yield result.prev_kv
            yield from getattr(result, "prev_kvs", ())


def grouped(ops: Sequence[Op], there: Iterable[bytes] = ()) -> Iterator[tuple[tuple[bytes, ...], list[Op]]]:
    """Groups of keys that no operation connects, and the operations of each, in order. `there`: keys that exist
    initially, seen or not.

    Operations on ranges without any seen key are a group without keys.
    """
    single = {start for op in ops for start, end in spans_of(op.asked) if not end}
    known = sorted(single | {kv.key for op in ops for kv in rows_of(op.answered)} | set(there))
    leader = {key: key for key in known}

    def find(key: bytes) -> bytes:
        while leader[key] != key:
            leader[key] = leader[leader[key]]
            key = leader[key]
        return key

    firsts: list[bytes | None] = []
    for op in ops:
        keys = [
            key for start, end in spans_of(op.asked) for key in ([start] if not end else _between(known, start, end))
        ]
        for key in keys[1:]:
            leader[find(key)] = find(keys[0])
        firsts.append(keys[0] if keys else None)
    groups: dict[bytes, tuple[list[bytes], list[Op]]] = {}
    for key in known:
        groups.setdefault(find(key), ([], []))[0].append(key)
    lost: list[Op] = []
    for op, first in zip(ops, firsts, strict=True):
        (lost if first is None else groups[find(first)][1]).append(op)
    if lost:
        yield (), lost
    for keys, members in groups.values():
        if members:
            yield tuple(keys), members


def _between(known: Sequence[bytes], start: bytes, end: bytes) -> list[bytes]:
    return [key for key in known if inside(key, start, end)]
