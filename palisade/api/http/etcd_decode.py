"""Requests of etcd's JSON paths, as values of the meta storage.

The rules that etcd's server applies before it proposes anything are here as well, where they are about the shape of
the request and not about the state of the store (etcdserver/api/v3rpc/key.go, 3.4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from palisade.api.http.protobuf_json import (
    BadJson,
    JsonMessage,
    as_bool,
    as_bytes,
    as_enum,
    as_int64,
    as_list,
    read_text,
    read_value,
)
from palisade.metastore.errors import InvalidRequest, KeyEmpty, KeyNotFound, LeaseNotFound
from palisade.metastore.requests import (
    Compact,
    Compare,
    CompareResult,
    CompareTarget,
    DeleteRange,
    LeaseGrant,
    Put,
    Range,
    SortOrder,
    SortTarget,
    Txn,
    WatchRequest,
    ttl_ms_of,
)

MIN_LEASE_TTL_S = 2
"""etcd raises shorter times to live to its election timeout: 2 s with its defaults."""
NESTING_MAX = 64
"""Deeper transactions are refused while they are read; the store has a lower limit of its own."""

FILTERS = {"NOPUT": "put", "NODELETE": "delete", 0: "put", 1: "delete"}
OPERAND_OF = {
    CompareTarget.VERSION: ("version", 0),
    CompareTarget.CREATE: ("create_revision", 0),
    CompareTarget.MOD: ("mod_revision", 0),
    CompareTarget.VALUE: ("value", b""),
    CompareTarget.LEASE: ("lease", 0),
}

_PUT = JsonMessage(
    "etcdserverpb.PutRequest",
    {
        "key": as_bytes,
        "value": as_bytes,
        "lease": as_int64,
        "prev_kv": as_bool,
        "ignore_value": as_bool,
        "ignore_lease": as_bool,
    },
)
_DELETE = JsonMessage("etcdserverpb.DeleteRangeRequest", {"key": as_bytes, "range_end": as_bytes, "prev_kv": as_bool})
_RANGE = JsonMessage(
    "etcdserverpb.RangeRequest",
    {
        "key": as_bytes,
        "range_end": as_bytes,
        "limit": as_int64,
        "revision": as_int64,
        "sort_order": as_enum(SortOrder, "etcdserverpb.RangeRequest_SortOrder"),
        "sort_target": as_enum(SortTarget, "etcdserverpb.RangeRequest_SortTarget"),
        "serializable": as_bool,
        "keys_only": as_bool,
        "count_only": as_bool,
        "min_mod_revision": as_int64,
        "max_mod_revision": as_int64,
        "min_create_revision": as_int64,
        "max_create_revision": as_int64,
    },
)
_COMPARE = JsonMessage(
    "etcdserverpb.Compare",
    {
        "result": as_enum(CompareResult, "etcdserverpb.Compare_CompareResult"),
        "target": as_enum(CompareTarget, "etcdserverpb.Compare_CompareTarget"),
        "key": as_bytes,
        "range_end": as_bytes,
        "version": as_int64,
        "create_revision": as_int64,
        "mod_revision": as_int64,
        "value": as_bytes,
        "lease": as_int64,
    },
)
_COMPACT = JsonMessage("etcdserverpb.CompactionRequest", {"revision": as_int64, "physical": as_bool})
_GRANT = JsonMessage("etcdserverpb.LeaseGrantRequest", {"TTL": as_int64, "ID": as_int64})
_LEASE = JsonMessage("etcdserverpb.LeaseRevokeRequest", {"ID": as_int64})
_TIME_TO_LIVE = JsonMessage("etcdserverpb.LeaseTimeToLiveRequest", {"ID": as_int64, "keys": as_bool})
_EMPTY = JsonMessage("etcdserverpb.EmptyRequest", {"linearizable": as_bool})


def _with_key(found: dict[str, Any]) -> dict[str, Any]:
    if not found.get("key"):
        raise KeyEmpty("etcdserver: key is not provided")
    return found


def decode_put(value: Any) -> Put:
    put = Put(**_with_key(_PUT.read(value)))
    if put.ignore_value and put.value:
        raise InvalidRequest("etcdserver: value is provided")
    if put.ignore_lease and put.lease:
        raise InvalidRequest("etcdserver: lease is provided")
    if put.lease < 0:
        raise LeaseNotFound(f"lease {put.lease} can't exist")
    return put


def decode_delete(value: Any) -> DeleteRange:
    return DeleteRange(**_with_key(_DELETE.read(value)))


def decode_range(value: Any) -> Range:
    return Range(**_with_key(_RANGE.read(value)))


def decode_compare(value: Any) -> Compare:
    found = _with_key(_COMPARE.read(value))
    target = found.get("target", CompareTarget.VERSION)
    operand, default = OPERAND_OF[target]
    return Compare(
        key=found["key"],
        target=target,
        result=found.get("result", CompareResult.EQUAL),
        operand=found.get(operand, default),
        range_end=found.get("range_end", b""),
    )


_OPERATIONS: dict[str, Callable[[Any, int], Any]] = {
    "request_put": lambda value, depth: decode_put(value),
    "request_delete_range": lambda value, depth: decode_delete(value),
    "request_range": lambda value, depth: decode_range(value),
    "request_txn": lambda value, depth: decode_txn(value, depth + 1),
}
_OPERATION = JsonMessage("etcdserverpb.RequestOp", {name: lambda value: value for name in _OPERATIONS})
_TXN = JsonMessage(
    "etcdserverpb.TxnRequest",
    {
        "compare": as_list(decode_compare),
        "success": as_list(lambda value: value),
        "failure": as_list(lambda value: value),
    },
)


def decode_txn(value: Any, depth: int = 0) -> Txn:
    if depth > NESTING_MAX:
        raise InvalidRequest(f"transactions are nested deeper than {NESTING_MAX}; flatten them")
    found = _TXN.read(value)
    return Txn(
        tuple(found.get("compare", ())),
        tuple(_decode_operation(operation, depth) for operation in found.get("success", ())),
        tuple(_decode_operation(operation, depth) for operation in found.get("failure", ())),
    )


def _decode_operation(value: Any, depth: int) -> Put | DeleteRange | Range | Txn:
    found = _OPERATION.read(value)
    if not found:
        raise KeyNotFound("etcdserver: key not found")
    if len(found) > 1:
        raise BadJson(f"a RequestOp holds one request, not {len(found)}: {', '.join(found)}")
    name, given = next(iter(found.items()))
    operation: Put | DeleteRange | Range | Txn = _OPERATIONS[name](given, depth)
    return operation


def decode_compact(value: Any) -> Compact:
    return Compact(_COMPACT.read(value).get("revision", 0))


def decode_grant(value: Any) -> LeaseGrant:
    found = _GRANT.read(value)
    return LeaseGrant(ttl_ms_of(max(MIN_LEASE_TTL_S, found.get("TTL", 0))), found.get("ID", 0))


def decode_lease_id(value: Any) -> int:
    id_: int = _LEASE.read(value).get("ID", 0)
    return id_


def decode_time_to_live(value: Any) -> tuple[int, bool]:
    """(lease id, whether its keys are wanted)"""
    found = _TIME_TO_LIVE.read(value)
    return found.get("ID", 0), found.get("keys", False)


def decode_empty(value: Any) -> None:
    _EMPTY.read(value)


@dataclass(frozen=True, slots=True)
class WatchCreate:
    watch: WatchRequest
    watch_id: int


@dataclass(frozen=True, slots=True)
class WatchCancel:
    watch_id: int


@dataclass(frozen=True, slots=True)
class WatchProgress:
    """Answer at which revision the stream is."""


def _as_filter(value: Any) -> str:
    found = FILTERS.get(value) if type(value) in (str, int) else None
    if found is None:
        raise BadJson(f'unknown value "{value}" for enum etcdserverpb.WatchCreateRequest_FilterType')
    return found


_CREATE = JsonMessage(
    "etcdserverpb.WatchCreateRequest",
    {
        "key": as_bytes,
        "range_end": as_bytes,
        "start_revision": as_int64,
        "progress_notify": as_bool,
        "filters": as_list(_as_filter),
        "prev_kv": as_bool,
        "watch_id": as_int64,
        "fragment": as_bool,
    },
)
_CANCEL = JsonMessage("etcdserverpb.WatchCancelRequest", {"watch_id": as_int64})
_PROGRESS = JsonMessage("etcdserverpb.WatchProgressRequest", {})
_WATCH = JsonMessage(
    "etcdserverpb.WatchRequest",
    {"create_request": _CREATE.read, "cancel_request": _CANCEL.read, "progress_request": _PROGRESS.read},
)


def decode_watch(value: Any) -> WatchCreate | WatchCancel | WatchProgress | None:
    """One message of the stream; None for an empty one, which asks for nothing."""
    found = _WATCH.read(value)
    if "create_request" in found:
        return _watch_create(found["create_request"])
    if "cancel_request" in found:
        return WatchCancel(found["cancel_request"].get("watch_id", 0))
    return WatchProgress() if "progress_request" in found else None


def _watch_create(found: dict[str, Any]) -> WatchCreate:
    watch = WatchRequest(
        key=found.get("key", b"") or b"\0",
        range_end=found.get("range_end", b""),
        start_revision=found.get("start_revision", 0),
        prev_kv=found.get("prev_kv", False),
        progress_notify=found.get("progress_notify", False),
        filters=frozenset(found.get("filters", ())),
    )
    return WatchCreate(watch, found.get("watch_id", 0))


def decode_messages(body: bytes) -> Iterator[Any]:
    """The JSON values of a stream's body, one after the other. Raises BadJson where one is broken."""
    text, position = read_text(body), 0
    while position < len(text):
        value, position = read_value(text, position)
        yield value
