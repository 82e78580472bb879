"""Commands and their results on the wire: msgpack arrays that begin with a number (never a class name, never pickle).

A command is [operation, request id or nil, fields...]; inside a transaction the request id is omitted. A command that
cannot be decoded is refused with the same text on every replica: the decoder depends on the bytes alone. A put without
options, the most frequent command, has its own operation.

`apply` returns results in wire form on every node, as tuples of msgpack types; a node that forwarded the command
receives them as lists; `decode_result` accepts both. A refusal is a result, too. Results stored for retries (M3) have
the same form, packed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgpack

from palisade.base.counted import counted
from palisade.base.errors import by_code
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
    SystemWrite,
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
    Result,
    TxnResult,
)

PLAIN_PUT, PUT, DELETE_RANGE, RANGE, TXN, COMPACT = 1, 2, 3, 4, 5, 6
LEASE_GRANT, LEASE_REVOKE, LEASE_KEEP_ALIVE, LEASE_EXPIRE = 7, 8, 9, 10
EVICT_RESULTS, DISARM_ALARM, TICK, PIN, UNPIN = 11, 12, 13, 14, 15
FOUND_CLUSTER, BEGIN_GENERATION, SYSTEM_WRITE = 16, 17, 18
PUT_SERIES = 19
"""`put_series.py`: many plain puts as one command."""
LEASE_GRANT_MS = 20
"""LEASE_GRANT has the ttl in whole seconds. It is not written any more, and may be in the log of an earlier version."""
COPY_CHUNK = 21

REFUSED, PUT_RESULT, DELETE_RANGE_RESULT, RANGE_RESULT, TXN_RESULT = 0, 1, 2, 3, 4
COMPACT_RESULT, LEASE_RESULT, DONE_RESULT, PIN_RESULT = 5, 6, 7, 8
SERIES, EACH = 9, 10
"""The results of a series of puts (`put_series.py`)."""
LEASE_MS_RESULT = 11
"""LEASE_RESULT has the ttl in whole seconds. It is not written any more, and may be among the stored results of
retries."""

INT_MIN, INT_MAX = -(1 << 63), (1 << 63) - 1
DEPTH_MAX = 64
"""Limit of the decoder; `Limits.txn_depth_max` is far below it."""

pack: Callable[[Any], bytes] = msgpack.Packer().pack
"""Reused for speed. Thread-safe: one call never releases the interpreter's lock."""
unpack: Callable[[bytes], Any] = msgpack.unpackb

Fields = list[Any]
Wire = tuple[Any, ...]
Numbered = Sequence[Any]
OPERATIONS = frozenset((Put, DeleteRange, Range, Txn))


def encode_command(request: Command, request_id: RequestId | None = None) -> bytes:
    """Raises InvalidRequest for a number of more than 64 bits."""
    rid = (request_id.client, request_id.sequence) if request_id is not None else None
    if type(request) is Put and not (request.lease or request.prev_kv or request.ignore_value or request.ignore_lease):
        return pack((PLAIN_PUT, rid, request.key, request.value))
    number, *fields = operation_fields(request)
    try:
        return pack((number, rid, *fields))
    except OverflowError:
        raise InvalidRequest("a number of the request does not fit in 64 bits") from None


def encode_plain_put(key: bytes, value: bytes, rid: tuple[str, int] | None) -> bytes:
    """The command of `Put(key, value)` with the request id (client, sequence), without creating objects for either."""
    return pack((PLAIN_PUT, rid, key, value))


def operation_fields(request: Any) -> tuple[Any, ...]:
    """[operation, fields...]. Raises TypeError for an unknown type."""
    encode = ENCODERS.get(type(request))
    if encode is None:
        raise TypeError(f"{type(request).__name__} is not a command of the store")
    return encode(request)


def flags_of(*flags: bool) -> int:
    return sum(1 << position for position, flag in enumerate(flags) if flag)


def put_fields(put: Put) -> tuple[Any, ...]:
    return (PUT, put.key, put.value, put.lease, flags_of(put.prev_kv, put.ignore_value, put.ignore_lease))


def range_fields(read: Range) -> tuple[Any, ...]:
    return (
        RANGE, read.key, read.range_end, read.limit, read.revision, int(read.sort_order), int(read.sort_target),
        flags_of(read.serializable, read.keys_only, read.count_only, read.exact_count),
        read.min_mod_revision, read.max_mod_revision, read.min_create_revision, read.max_create_revision,
    )  # fmt: skip


def txn_fields(txn: Txn) -> tuple[Any, ...]:
    compares = [(c.key, int(c.target), int(c.result), c.operand, c.range_end) for c in txn.compare]
    branches = [[operation_fields(operation) for operation in branch] for branch in (txn.success, txn.failure)]
    return (TXN, compares, *branches)


ENCODERS: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    Put: put_fields,
    DeleteRange: lambda r: (DELETE_RANGE, r.key, r.range_end, flags_of(r.prev_kv)),
    Range: range_fields,
    Txn: txn_fields,
    Compact: lambda r: (COMPACT, r.revision),
    LeaseGrant: lambda r: (LEASE_GRANT_MS, r.ttl_ms, r.id),
    LeaseRevoke: lambda r: (LEASE_REVOKE, r.id),
    LeaseKeepAlive: lambda r: (LEASE_KEEP_ALIVE, r.id),
    LeaseExpire: lambda r: (LEASE_EXPIRE, r.ids),
    EvictResults: lambda r: (EVICT_RESULTS, r.clock_ms),
    DisarmAlarm: lambda r: (DISARM_ALARM,),
    Tick: lambda r: (TICK,),
    Pin: lambda r: (PIN, r.id, r.revision, r.ttl_ms),
    Unpin: lambda r: (UNPIN, r.id),
    FoundCluster: lambda r: (FOUND_CLUSTER, r.cluster_id),
    BeginGeneration: lambda r: (BEGIN_GENERATION, r.generation),
    SystemWrite: lambda r: (SYSTEM_WRITE, r.expected, r.records),
    CopyChunk: lambda r: (COPY_CHUNK, r.manifest, r.opened, r.chunk, r.key, r.range_end),
}


def unpack_command(command: bytes) -> Any:
    """The msgpack value. Every decoding failure is a refusal: the decoder depends on these bytes alone."""
    try:
        return unpack(command)
    except MemoryError:
        raise
    except Exception as error:
        kind = type(error).__name__
        raise InvalidRequest(f"the command is not msgpack ({kind}): send what encode_command makes") from None


def decode_command(command: bytes) -> tuple[Command, RequestId | None]:
    """Raises InvalidRequest for anything that `encode_command` does not produce."""
    return decode_fields(unpack_command(command))


def decode_fields(value: Any) -> tuple[Command, RequestId | None]:
    """From the msgpack value of a command."""
    fields = an_array(value)
    need(len(fields) >= 2, "a command has an operation and a request id")
    request = decode_operation([fields[0], *fields[2:]], 0)
    if isinstance(request, Range):
        raise InvalidRequest("a range read is not a command: only reads inside a transaction are proposed")
    return request, decode_request_id(fields[1])


def decode_request_id(value: Any) -> RequestId | None:
    if value is None:
        return None
    client, sequence = fixed(an_array(value), 2)
    return RequestId(a_text(client), an_int(sequence))


def decode_operation(value: Any, depth: int) -> Any:
    fields = an_array(value)
    if not fields or type(fields[0]) is not int:
        raise malformed("an operation opens with its number")
    number, rest = fields[0], fields[1:]
    if number == TXN:
        return decode_txn(rest, depth)
    decode = DECODERS.get(number)
    if decode is None:
        raise InvalidRequest(f"operation {number} is unknown to this version: upgrade the node or use another request")
    return decode(rest)


def decode_txn(fields: Fields, depth: int) -> Txn:
    need(depth < DEPTH_MAX, f"transactions are nested deeper than {DEPTH_MAX}")
    compares, success, failure = fixed(fields, 3)
    return Txn(
        tuple(decode_compare(compare) for compare in an_array(compares)),
        decode_branch(success, depth + 1),
        decode_branch(failure, depth + 1),
    )


def decode_branch(value: Any, depth: int) -> tuple[Any, ...]:
    operations = tuple(decode_operation(item, depth) for item in an_array(value))
    for operation in operations:
        if type(operation) not in OPERATIONS:
            raise malformed("a transaction has puts, deletes, ranges and transactions only")
    return operations


def decode_compare(value: Any) -> Compare:
    key, target, result, operand, end = fixed(an_array(value), 5)
    typed = operand if type(operand) is bytes else an_int(operand)
    return Compare(a_key(key), member(target, TARGETS), member(result, RESULTS), typed, a_key(end))


def decode_plain_put(fields: Fields) -> Put:
    key, value = fixed(fields, 2)
    return Put(a_key(key), a_key(value))


def decode_put(fields: Fields) -> Put:
    key, value, lease, flags = fixed(fields, 4)
    return Put(a_key(key), a_key(value), an_int(lease), *flags_from(flags, 3))


def decode_delete_range(fields: Fields) -> DeleteRange:
    key, end, flags = fixed(fields, 3)
    return DeleteRange(a_key(key), a_key(end), *flags_from(flags, 1))


def decode_range(fields: Fields) -> Range:
    key, end, limit, revision, order, target, flags, *numbers = fixed(fields, 11)
    serializable, keys_only, count_only, exact_count = flags_from(flags, 4)
    bounds: tuple[int, int, int, int] = tuple(map(an_int, numbers))  # type: ignore[assignment]
    return Range(
        a_key(key), a_key(end), an_int(limit), an_int(revision),
        member(order, SORT_ORDERS), member(target, SORT_TARGETS),
        serializable, keys_only, count_only, *bounds, exact_count,
    )  # fmt: skip


def decode_pin(fields: Fields) -> Pin:
    name, revision, ttl_ms = fixed(fields, 3)
    return Pin(a_text(name), an_int(revision), an_int(ttl_ms))


def decode_grant_in_s(fields: Fields) -> LeaseGrant:
    ttl_s, lease = map(an_int, fixed(fields, 2))
    return LeaseGrant(ttl_s * 1000, lease)


def decode_system_write(fields: Fields) -> SystemWrite:
    expected, records = (tuple(fixed(an_array(each), 2) for each in an_array(part)) for part in fixed(fields, 2))
    return SystemWrite(
        tuple((a_text(name), an_int(version)) for name, version in expected),
        tuple((a_text(name), a_key(value)) for name, value in records),
    )


def decode_copy_chunk(fields: Fields) -> CopyChunk:
    manifest, opened, chunk, key, end = fixed(fields, 5)
    return CopyChunk(a_key(manifest), an_int(opened), a_key(chunk), a_key(key), a_key(end))


DECODERS: dict[int, Callable[[Fields], Any]] = {
    PLAIN_PUT: decode_plain_put,
    PUT: decode_put,
    DELETE_RANGE: decode_delete_range,
    RANGE: decode_range,
    COMPACT: lambda fields: Compact(*map(an_int, fixed(fields, 1))),
    LEASE_GRANT: decode_grant_in_s,
    LEASE_GRANT_MS: lambda fields: LeaseGrant(*map(an_int, fixed(fields, 2))),
    LEASE_REVOKE: lambda fields: LeaseRevoke(*map(an_int, fixed(fields, 1))),
    LEASE_KEEP_ALIVE: lambda fields: LeaseKeepAlive(*map(an_int, fixed(fields, 1))),
    LEASE_EXPIRE: lambda fields: LeaseExpire(tuple(map(an_int, an_array(fixed(fields, 1)[0])))),
    EVICT_RESULTS: lambda fields: EvictResults(*map(an_int, fixed(fields, 1))),
    DISARM_ALARM: lambda fields: DisarmAlarm(*fixed(fields, 0)),
    TICK: lambda fields: Tick(*fixed(fields, 0)),
    PIN: decode_pin,
    UNPIN: lambda fields: Unpin(a_text(fixed(fields, 1)[0])),
    FOUND_CLUSTER: lambda fields: FoundCluster(a_text(fixed(fields, 1)[0])),
    BEGIN_GENERATION: lambda fields: BeginGeneration(an_int(fixed(fields, 1)[0])),
    SYSTEM_WRITE: decode_system_write,
    COPY_CHUNK: decode_copy_chunk,
}


def malformed(what: str) -> InvalidRequest:
    return InvalidRequest(f"malformed command: {what}")


def need(holds: bool, what: str) -> None:
    if not holds:
        raise malformed(what)


def an_array(value: Any) -> Fields:
    if type(value) is not list:
        raise malformed(f"an array is expected, not {type(value).__name__}")
    return value


def fixed(fields: Fields, length: int) -> Fields:
    if len(fields) != length:
        raise malformed(f"expected {counted(length, 'field')}, got {len(fields)}")
    return fields


def a_key(value: Any) -> bytes:
    if type(value) is not bytes:
        raise malformed(f"bytes are expected, not {type(value).__name__}")
    return value


def an_int(value: Any) -> int:
    if type(value) is not int or not INT_MIN <= value <= INT_MAX:
        raise malformed("a number of 64 bits is expected")
    return value


def a_text(value: Any) -> str:
    if type(value) is not str:
        raise malformed(f"text is expected, not {type(value).__name__}")
    return value


def flags_from(value: Any, count: int) -> Sequence[bool]:
    if type(value) is not int or not 0 <= value < 1 << count:
        raise malformed("unknown option flags")
    return FLAGS[value][:count]


FLAGS = [tuple(bool(value >> position & 1) for position in range(4)) for value in range(16)]


def member(value: Any, members: Sequence[Any]) -> Any:
    if type(value) is not int or not 0 <= value < len(members):
        raise malformed("a target, result or order is unknown")
    return members[value]


TARGETS, RESULTS = tuple(CompareTarget), tuple(CompareResult)
SORT_ORDERS, SORT_TARGETS = tuple(SortOrder), tuple(SortTarget)


def refusal(error: MetastoreError) -> Wire:
    return (REFUSED, error.code, str(error), error.minimal_revision if isinstance(error, Compacted) else 0)


def put_result(result: PutResult) -> Wire:
    if result.prev_kv is None:
        return (PUT_RESULT, result.revision)
    return (PUT_RESULT, result.revision, tuple(result.prev_kv))


def kvs(pairs: Sequence[KeyValue]) -> Wire:
    return tuple(map(tuple, pairs))


RESULT_ENCODERS: dict[type, Callable[[Any], Wire]] = {
    PutResult: put_result,
    DeleteRangeResult: lambda r: (DELETE_RANGE_RESULT, r.revision, r.deleted, kvs(r.prev_kvs)),
    RangeResult: lambda r: (RANGE_RESULT, r.revision, kvs(r.kvs), r.more, r.count),
    TxnResult: lambda r: (TXN_RESULT, r.revision, r.succeeded, tuple(map(encode_result, r.results))),
    CompactResult: lambda r: (COMPACT_RESULT, r.revision, r.minimal_revision),
    LeaseResult: lambda r: (LEASE_MS_RESULT, r.revision, r.id, r.ttl_ms),
    DoneResult: lambda r: (DONE_RESULT, r.revision, r.count),
    PinResult: lambda r: (PIN_RESULT, r.revision, r.minimal_revision, r.remaining_ms),
}


def encode_result(result: Result) -> Wire:
    return RESULT_ENCODERS[type(result)](result)


def revision_of(wire: Numbered) -> int:
    """The store's revision when the command was executed; the last one of a series; 0 for a refusal."""
    kind = wire[0]
    if kind == PUT_RESULT:
        return wire[1]  # type: ignore[no-any-return]
    if kind == REFUSED:
        return 0
    if kind == EACH:
        return max(map(revision_of, wire[1]), default=0)
    return int(wire[1] + wire[2] - 1 if kind == SERIES else wire[1])


def kvs_from(pairs: Numbered) -> tuple[KeyValue, ...]:
    return tuple(map(KeyValue._make, pairs))


RESULT_DECODERS: dict[int, Callable[..., Result]] = {
    PUT_RESULT: lambda revision, prev=None: PutResult(revision, KeyValue._make(prev) if prev is not None else None),
    DELETE_RANGE_RESULT: lambda revision, deleted, pairs: DeleteRangeResult(revision, deleted, kvs_from(pairs)),
    RANGE_RESULT: lambda revision, pairs, more, count: RangeResult(revision, kvs_from(pairs), more, count),
    TXN_RESULT: lambda revision, succeeded, results: TxnResult(revision, succeeded, tuple(map(decode_result, results))),
    COMPACT_RESULT: CompactResult,
    LEASE_RESULT: lambda revision, id_, ttl_s: LeaseResult(revision, id_, ttl_s * 1000),
    LEASE_MS_RESULT: LeaseResult,
    DONE_RESULT: DoneResult,
    PIN_RESULT: PinResult,
}


def decode_result(wire: Numbered) -> Any:
    """The result as a value of `results.py`. Raises the contained refusal (`errors.py`)."""
    if len(wire) == 2 and wire[0] == PUT_RESULT:
        return PutResult(wire[1])
    number, *fields = wire
    if number == REFUSED:
        raise error_from(*fields)
    return RESULT_DECODERS[number](*fields)


def refusal_in(wire: Numbered) -> MetastoreError:
    """The refusal instead of the expected result."""
    return error_from(*wire[1:]) if wire[0] == REFUSED else MetastoreError(f"unexpected kind of result: {wire[0]}")


def error_from(code: str, message: str, minimal_revision: int) -> MetastoreError:
    """An unknown code, of a newer version, becomes a MetastoreError with its text."""
    kind = by_code(MetastoreError).get(code, MetastoreError)
    if issubclass(kind, Compacted):
        return kind(message, minimal_revision)
    return kind(message)
