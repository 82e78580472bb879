"""Refusals that do not depend on the state: sizes, counts, contradictory options (M8).

Checked on the node that receives the request, before anything is proposed, and again when it is applied. The rules are
etcd's where it has one; a function that is stricter documents it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

from palisade.base.key_text import key_text
from palisade.metastore.errors import (
    DuplicateKey,
    InvalidRequest,
    KeyEmpty,
    KeyTooLarge,
    RequestTooLarge,
    TooManyOperations,
    ValueTooLarge,
)
from palisade.metastore.lease import LEASE_ID_MAX
from palisade.metastore.limits import Limits
from palisade.metastore.mvcc import end_of
from palisade.metastore.request_results import SEQUENCE_MAX
from palisade.metastore.requests import (
    Command,
    Compare,
    CompareTarget,
    CopyChunk,
    DeleteRange,
    LeaseGrant,
    Pin,
    Put,
    Range,
    RequestId,
    Txn,
)

OPERATION_BYTES = 32
Operation = Put | DeleteRange | Range | Txn


def check_request(request: Command | Range, limits: Limits) -> None:
    """Raises the refusal of a request that could not be applied in any state."""
    check = CHECKS.get(type(request))
    if check is not None:
        check(request, limits)


def check_request_id(request_id: RequestId, limits: Limits) -> None:
    size = text_size(request_id.client)
    if not 1 <= size <= limits.client_bytes_max:
        raise InvalidRequest(f"a client id has 1 to {limits.client_bytes_max} bytes, not {size}: choose another one")
    if not 1 <= request_id.sequence <= SEQUENCE_MAX:
        raise InvalidRequest(f"the sequence {request_id.sequence} of a request is out of range: count from 1")


def text_size(text: str) -> int:
    """The size in bytes of UTF-8."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise InvalidRequest(f"{text!r} is not text that UTF-8 can hold: choose another id") from None


def check_range(request: DeleteRange | Range, limits: Limits) -> None:
    key_bytes, end_bytes = len(request.key), len(request.range_end)
    if not request.key:
        raise KeyEmpty("the key is empty: give one (all keys: the prefix '', or the range from 0x00 to 0x00)")
    if key_bytes > limits.key_bytes_max:
        check_key(request.key, limits)
    if end_bytes > limits.key_bytes_max:
        raise KeyTooLarge(too_large("range end", request.range_end, limits.key_bytes_max))
    if OPERATION_BYTES + key_bytes + end_bytes > limits.request_bytes_max:
        check_size(size_of(request), limits)


def check_key(key: bytes, limits: Limits) -> None:
    if not key:
        raise KeyEmpty("the key is empty: a key has at least one byte")
    if len(key) > limits.key_bytes_max:
        raise KeyTooLarge(too_large("key", key, limits.key_bytes_max))


def too_large(what: str, content: bytes, bytes_max: int) -> str:
    return f"the {what} {key_text(content, 32)} has {len(content)} bytes, the limit is {bytes_max}: shorten it"


def check_put(request: Put, limits: Limits) -> None:
    key_bytes, value_bytes = len(request.key), len(request.value)
    if not 0 < key_bytes <= limits.key_bytes_max:
        check_key(request.key, limits)
    if value_bytes > limits.value_bytes_max:
        raise ValueTooLarge(
            f"the value of {key_text(request.key)} has {len(request.value)} bytes, the limit is"
            f" {limits.value_bytes_max}: split it over several keys"
        )
    if request.ignore_value and request.value:
        raise InvalidRequest(f"the put of {key_text(request.key)} has a value and ignore_value: give one of them")
    if request.ignore_lease and request.lease:
        raise InvalidRequest(f"the put of {key_text(request.key)} has a lease and ignore_lease: give one of them")
    if request.lease:
        check_lease_id(request.lease)
    if OPERATION_BYTES + key_bytes + value_bytes > limits.request_bytes_max:
        check_size(size_of(request), limits)


def check_lease_id(lease: int) -> None:
    if not 0 <= lease <= LEASE_ID_MAX:
        raise InvalidRequest(f"the lease id {lease} is out of range: use 1 to {LEASE_ID_MAX}")


def check_grant(request: LeaseGrant, limits: Limits) -> None:
    check_lease_id(request.id)


def check_pin(request: Pin, limits: Limits) -> None:
    size = text_size(request.id)
    if not 1 <= size <= limits.client_bytes_max:
        raise InvalidRequest(f"the id of a pin has 1 to {limits.client_bytes_max} bytes, not {size}")
    if not 1 <= request.ttl_ms <= limits.pin_ttl_ms_max:
        raise InvalidRequest(f"a pin lives 1 to {limits.pin_ttl_ms_max} ms, not {request.ttl_ms}: renew it meanwhile")


def check_copy_chunk(request: CopyChunk, limits: Limits) -> None:
    for key in (request.manifest, request.chunk, request.key, request.range_end):
        check_key(key, limits)


def check_txn(request: Txn, limits: Limits) -> None:
    check_depth(request, limits.txn_depth_max)
    count = operations_of(request)
    if count > limits.txn_operations_max:
        raise TooManyOperations(
            f"the transaction may execute {count} operations, nested ones counted; the limit is"
            f" {limits.txn_operations_max}: split it"
        )
    check_parts(request, limits)
    check_size(size_of(request), limits)
    writes_of(request)


CHECKS: dict[type[Any], Callable[[Any, Limits], None]] = {
    Put: check_put,
    Txn: check_txn,
    DeleteRange: check_range,
    Range: check_range,
    LeaseGrant: check_grant,
    Pin: check_pin,
    CopyChunk: check_copy_chunk,
}
"""Of the requests whose fields have limits. By the exact type, because each read and each write passes here."""


def check_depth(request: Txn, depth_max: int) -> None:
    if depth_max == 0:
        raise TooManyOperations("transactions are nested too deep: flatten them")
    for operation in (*request.success, *request.failure):
        if isinstance(operation, Txn):
            check_depth(operation, depth_max - 1)


def operations_of(request: Txn) -> int:
    """The maximum that one execution runs. etcd counts each level separately; here nested ones are added up."""
    return max(len(request.compare), branch_operations(request.success), branch_operations(request.failure))


def branch_operations(branch: Sequence[Operation]) -> int:
    return len(branch) + sum(operations_of(operation) for operation in branch if isinstance(operation, Txn))


def check_parts(request: Txn, limits: Limits) -> None:
    for compare in request.compare:
        check_compare(compare, limits)
    for operation in (*request.success, *request.failure):
        if isinstance(operation, Txn):
            check_parts(operation, limits)
        elif isinstance(operation, Put):
            check_put(operation, limits)
        else:
            check_range(operation, limits)


def check_compare(compare: Compare, limits: Limits) -> None:
    check_key(compare.key, limits)
    if len(compare.range_end) > limits.key_bytes_max:
        raise KeyTooLarge(too_large("range end", compare.range_end, limits.key_bytes_max))
    if isinstance(compare.operand, bytes) != (compare.target is CompareTarget.VALUE):
        raise InvalidRequest(
            f"the compare of {key_text(compare.key)} with {compare.target.name} needs another operand than"
            f" {type(compare.operand).__name__}: bytes for VALUE, a number for all others"
        )


def check_size(size: int, limits: Limits) -> None:
    if size > limits.request_bytes_max:
        raise RequestTooLarge(f"the request has {size} bytes, the limit is {limits.request_bytes_max}: split it")


def size_of(request: Operation) -> int:
    """Bytes of everything that the caller sent."""
    if isinstance(request, Put):
        return OPERATION_BYTES + len(request.key) + len(request.value)
    if isinstance(request, Txn):
        compares = sum(compare_size(compare) for compare in request.compare)
        return OPERATION_BYTES + compares + sum(size_of(item) for item in (*request.success, *request.failure))
    return OPERATION_BYTES + len(request.key) + len(request.range_end)


def compare_size(compare: Compare) -> int:
    operand = len(compare.operand) if isinstance(compare.operand, bytes) else 8
    return OPERATION_BYTES + len(compare.key) + len(compare.range_end) + operand


class Writes:
    """What a branch may write: keys that are put, intervals that are deleted (end None: to the last key)."""

    __slots__ = ("deletes", "puts")

    def __init__(self) -> None:
        self.puts: set[bytes] = set()
        self.deletes: list[tuple[bytes, bytes | None]] = []

    def add(self, other: Writes) -> None:
        self.puts |= other.puts
        self.deletes += other.deletes


def writes_of(request: Txn) -> Writes:
    """Of both branches: only one is executed. Raises DuplicateKey."""
    writes = branch_writes(request.success)
    writes.add(branch_writes(request.failure))
    return writes


def branch_writes(branch: Sequence[Operation]) -> Writes:
    """Raises DuplicateKey if two operations of it may write the same key; only deletes may overlap.

    Stricter than etcd in one case: etcd allows a nested delete after a put of the same key in an earlier nested
    transaction, so that the key changes twice in one revision.
    """
    parts = [operation_writes(operation) for operation in branch]
    owner: dict[bytes, int] = {}
    for number, part in enumerate(parts):
        for key in part.puts:
            if owner.setdefault(key, number) != number:
                raise duplicate(key)
    keys = sorted(owner)
    for number, part in enumerate(parts):
        for start, end in part.deletes:
            check_delete(keys, owner, number, start, end)
    total = Writes()
    for part in parts:
        total.add(part)
    return total


def operation_writes(operation: Operation) -> Writes:
    if isinstance(operation, Txn):
        return writes_of(operation)
    writes = Writes()
    if isinstance(operation, Put):
        writes.puts.add(operation.key)
    elif isinstance(operation, DeleteRange):
        end = end_of(operation.range_end) if operation.range_end else operation.key + b"\0"
        writes.deletes.append((operation.key, end))
    return writes


def check_delete(keys: list[bytes], owner: dict[bytes, int], number: int, start: bytes, end: bytes | None) -> None:
    """The delete of operation `number` must not meet a put of another operation."""
    for position in range(bisect_left(keys, start), len(keys)):
        key = keys[position]
        if end is not None and key >= end:
            return
        if owner[key] != number:
            raise duplicate(key)


def duplicate(key: bytes) -> DuplicateKey:
    return DuplicateKey(f"duplicate key {key[:64]!r}: the transaction would write it twice in one revision")


def is_read_only(request: Any) -> bool:
    """Whether it is a Range, or a transaction without writes in either branch, which need not be proposed."""
    if isinstance(request, Txn):
        return all(is_read_only(operation) for operation in (*request.success, *request.failure))
    return isinstance(request, Range)
