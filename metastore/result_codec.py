"""Results in wire form: tuples of msgpack types that begin with a number. A refusal is a result, too.

`apply` returns this form on every node; a node that forwarded the command receives it as lists; `decode_result` accepts
both. Results stored for retries (M3) have the same form, packed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from palisade.base.errors import by_code
from palisade.metastore.errors import Compacted, MetastoreError
from palisade.metastore.results import (
    CompactResult,
    DeleteRangeResult,
    DoneResult,
    KeyValue,
    LeaseResult,
    PinResult,
    PutResult,
    RangeResult,
    Result,
    TxnResult,
)

REFUSED, PUT, DELETE_RANGE, RANGE, TXN, COMPACT, LEASE, DONE, PIN = range(9)
SERIES, EACH = 9, 10
"""The results of a series of puts (`put_series.py`)."""
LEASE_MS = 11
"""LEASE has the ttl in whole seconds. It is not written any more, and may be among the stored results of retries."""

Wire = tuple[Any, ...]
Numbered = Sequence[Any]


def refusal(error: MetastoreError) -> Wire:
    return (REFUSED, error.code, str(error), error.minimal_revision if isinstance(error, Compacted) else 0)


def put_result(result: PutResult) -> Wire:
    if result.prev_kv is None:
        return (PUT, result.revision)
    return (PUT, result.revision, tuple(result.prev_kv))


def kvs(pairs: Sequence[KeyValue]) -> Wire:
    return tuple(map(tuple, pairs))


ENCODERS: dict[type, Callable[[Any], Wire]] = {
    PutResult: put_result,
    DeleteRangeResult: lambda r: (DELETE_RANGE, r.revision, r.deleted, kvs(r.prev_kvs)),
    RangeResult: lambda r: (RANGE, r.revision, kvs(r.kvs), r.more, r.count),
    TxnResult: lambda r: (TXN, r.revision, r.succeeded, tuple(map(encode_result, r.results))),
    CompactResult: lambda r: (COMPACT, r.revision, r.minimal_revision),
    LeaseResult: lambda r: (LEASE_MS, r.revision, r.id, r.ttl_ms),
    DoneResult: lambda r: (DONE, r.revision, r.count),
    PinResult: lambda r: (PIN, r.revision, r.minimal_revision, r.remaining_ms),
}


def encode_result(result: Result) -> Wire:
    return ENCODERS[type(result)](result)


def revision_of(wire: Numbered) -> int:
    """Of the store when the command was executed; the last one of a series; 0 for a refusal."""
    kind = wire[0]
    if kind == PUT:
        return wire[1]  # type: ignore[no-any-return]
    if kind == REFUSED:
        return 0
    if kind == EACH:
        return max(map(revision_of, wire[1]), default=0)
    return int(wire[1] + wire[2] - 1 if kind == SERIES else wire[1])


def kvs_from(pairs: Numbered) -> tuple[KeyValue, ...]:
    return tuple(map(KeyValue._make, pairs))


DECODERS: dict[int, Callable[..., Result]] = {
    PUT: lambda revision, prev=None: PutResult(revision, KeyValue._make(prev) if prev is not None else None),
    DELETE_RANGE: lambda revision, deleted, pairs: DeleteRangeResult(revision, deleted, kvs_from(pairs)),
    RANGE: lambda revision, pairs, more, count: RangeResult(revision, kvs_from(pairs), more, count),
    TXN: lambda revision, succeeded, results: TxnResult(revision, succeeded, tuple(map(decode_result, results))),
    COMPACT: CompactResult,
    LEASE: lambda revision, id_, ttl_s: LeaseResult(revision, id_, ttl_s * 1000),
    LEASE_MS: LeaseResult,
    DONE: DoneResult,
    PIN: PinResult,
}


def decode_result(wire: Numbered) -> Any:
    """The result as a value of `results.py`. Raises the contained refusal (`errors.py`)."""
    if len(wire) == 2 and wire[0] == PUT:
        return PutResult(wire[1])
    number, *fields = wire
    if number == REFUSED:
        raise error_from(*fields)
    return DECODERS[number](*fields)


def refusal_in(wire: Numbered) -> MetastoreError:
    """The refusal instead of the expected result."""
    return error_from(*wire[1:]) if wire[0] == REFUSED else MetastoreError(f"a result of another kind came: {wire[0]}")


def error_from(code: str, message: str, minimal_revision: int) -> MetastoreError:
    """An unknown code, of a newer version, becomes a MetastoreError with its text."""
    kind = by_code(MetastoreError).get(code, MetastoreError)
    if issubclass(kind, Compacted):
        return kind(message, minimal_revision)
    return kind(message)
