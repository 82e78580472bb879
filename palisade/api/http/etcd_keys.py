"""Keys over the JSON paths of etcd v3: decodes requests into those of the metastore, and encodes results as the gateway
of etcd 3.4 does.

The rules of etcd's server about the shape of a request, which need no state of the store, are here as well
(etcdserver/api/v3rpc/key.go, 3.4). In responses bytes are base64, int64 a string, and a field that has its default
(zero, false, empty) is omitted. The order of the fields is that of etcd's proto files.

`EtcdKeys` calls `reply` exactly once for each request: for writes in the turn of the event loop in which they are
applied, without a task or a future of their own, and for reads of one key at once if the quorum lease permits it.
"""

from __future__ import annotations

import asyncio
from binascii import b2a_base64
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from palisade.api.http.etcd_errors import refused
from palisade.api.http.protobuf_json import (
    BadJson,
    JsonMessage,
    as_bool,
    as_bytes,
    as_enum,
    as_int64,
    as_list,
    read_single,
)
from palisade.api.http.request_head import HttpReply, Unary
from palisade.metastore.errors import InvalidRequest, KeyEmpty, KeyNotFound, LeaseNotFound
from palisade.metastore.requests import (
    Command,
    Compact,
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
from palisade.metastore.results import (
    CompactResult,
    DeleteRangeResult,
    KeyValue,
    PutResult,
    RangeResult,
    TxnResult,
)
from palisade.metastore.validation import is_read_only
from palisade.service.callers import Caller
from palisade.service.key_values import KeyValues

NESTING_MAX = 64
"""Deeper transactions are refused while they are read; the store has a lower limit of its own."""
NO_KEY = "etcdserver: key is not provided"
OPERAND_OF = {
    CompareTarget.VERSION: ("version", 0),
    CompareTarget.CREATE: ("create_revision", 0),
    CompareTarget.MOD: ("mod_revision", 0),
    CompareTarget.VALUE: ("value", b""),
    CompareTarget.LEASE: ("lease", 0),
}
NestedResult = PutResult | DeleteRangeResult | RangeResult | TxnResult
Fields = Callable[[Any, str], str]
"""The response to a request, from its result and the text of its header."""


class Header:
    """The header of every answer. `cluster_id` and `member_id` are the numbers that stand for this cluster and node."""

    __slots__ = ("_begin",)

    def __init__(self, cluster_id: int, member_id: int) -> None:
        self._begin = f'"header":{{"cluster_id":"{cluster_id}","member_id":"{member_id}",'

    def text(self, revision: int, term: int) -> str:
        """`revision` 0 stands for an answer that is about no revision."""
        if revision:
            return f'{self._begin}"revision":"{revision}","raft_term":"{term}"}}'
        return f'{self._begin}"raft_term":"{term}"}}'


def _with_key(found: dict[str, Any]) -> dict[str, Any]:
    if not found.get("key"):
        raise KeyEmpty(NO_KEY)
    return found


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


def decode_put(value: Any) -> Put:
    found = _PUT.read(value)
    if not found.get("key"):
        raise KeyEmpty(NO_KEY)
    put = Put(**found)
    if put.ignore_value and put.value:
        raise InvalidRequest("etcdserver: value is provided")
    if put.ignore_lease and put.lease:
        raise InvalidRequest("etcdserver: lease is provided")
    if put.lease < 0:
        raise LeaseNotFound(f"lease {put.lease} can't exist")
    return put


def put_fields(result: PutResult, header: str) -> str:
    if result.prev_kv is None:
        return f"{{{header}}}"
    return f'{{{header},"prev_kv":{key_value(result.prev_kv)}}}'


_DELETE = JsonMessage("etcdserverpb.DeleteRangeRequest", {"key": as_bytes, "range_end": as_bytes, "prev_kv": as_bool})


def decode_delete(value: Any) -> DeleteRange:
    return DeleteRange(**_with_key(_DELETE.read(value)))


def delete_fields(result: DeleteRangeResult, header: str) -> str:
    text = f"{{{header}"
    if result.deleted:
        text += f',"deleted":"{result.deleted}"'
    if result.prev_kvs:
        text += f',"prev_kvs":[{",".join(map(key_value, result.prev_kvs))}]'
    return text + "}"


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


def decode_range(value: Any) -> Range:
    return Range(**_with_key(_RANGE.read(value)))


def range_fields(result: RangeResult, header: str) -> str:
    text = f"{{{header}"
    if result.kvs:
        text += f',"kvs":[{",".join(map(key_value, result.kvs))}]'
    if result.more:
        text += ',"more":true'
    if result.count:
        text += f',"count":"{result.count}"'
    return text + "}"


def base64_text(value: bytes) -> str:
    return b2a_base64(value, newline=False).decode("ascii")


def key_value(kv: KeyValue) -> str:
    """One JSON object. A deleted key has neither create revision nor version."""
    text = f'{{"key":"{b2a_base64(kv.key, newline=False).decode()}"'
    if kv.create_revision:
        text += f',"create_revision":"{kv.create_revision}"'
    if kv.mod_revision:
        text += f',"mod_revision":"{kv.mod_revision}"'
    if kv.version:
        text += f',"version":"{kv.version}"'
    if kv.value:
        text += f',"value":"{b2a_base64(kv.value, newline=False).decode()}"'
    if kv.lease:
        text += f',"lease":"{kv.lease}"'
    return text + "}"


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


def txn_fields(result: TxnResult, header: str) -> str:
    text = f"{{{header}"
    if result.succeeded:
        text += ',"succeeded":true'
    if result.results:
        text += f',"responses":[{",".join(map(_response, result.results))}]'
    return text + "}"


def _response(result: NestedResult) -> str:
    """etcd leaves the header of a nested transaction empty."""
    if isinstance(result, PutResult):
        return f'{{"response_put":{put_fields(result, inner_header(result.revision))}}}'
    if isinstance(result, DeleteRangeResult):
        return f'{{"response_delete_range":{delete_fields(result, inner_header(result.revision))}}}'
    if isinstance(result, RangeResult):
        return f'{{"response_range":{range_fields(result, inner_header(result.revision))}}}'
    return f'{{"response_txn":{txn_fields(result, _EMPTY_HEADER)}}}'


def inner_header(revision: int) -> str:
    """The header of an operation in a transaction."""
    return f'"header":{{"revision":"{revision}"}}'


_EMPTY_HEADER = '"header":{}'
_COMPACT = JsonMessage("etcdserverpb.CompactionRequest", {"revision": as_int64, "physical": as_bool})


def decode_compact(value: Any) -> Compact:
    return Compact(_COMPACT.read(value).get("revision", 0))


def compact_fields(result: CompactResult, header: str) -> str:
    return f"{{{header}}}"


class EtcdKeys:
    """The paths below /v3/kv, and what the other paths share with them: the header, writes, and answers that take a
    task."""

    def __init__(self, service: KeyValues, cluster_id: int, member_id: int) -> None:
        self._service = service
        self.header = Header(cluster_id, member_id)
        self._tasks: set[asyncio.Task[None]] = set()
        self.unary: dict[str, Unary] = {
            "/v3/kv/put": self.writes(decode_put, put_fields),
            "/v3/kv/range": self.range,
            "/v3/kv/deleterange": self.writes(decode_delete, delete_fields),
            "/v3/kv/txn": self.txn,
            "/v3/kv/compaction": self.writes(decode_compact, compact_fields),
        }

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def writes(self, decode: Callable[[Any], Command], fields: Fields) -> Unary:
        """A path of writes: how its body is read, and its result written."""
        return partial(self._write, decode, fields)

    def _write(
        self, decode: Callable[[Any], Command], fields: Fields, body: bytes, reply: HttpReply, caller: Caller
    ) -> None:
        try:
            self._service.submit(decode(read_single(body)), partial(self._answer, fields, reply), caller=caller)
        except Exception as error:
            reply(*refused(error))

    def txn(self, body: bytes, reply: HttpReply, caller: Caller) -> None:
        try:
            request = decode_txn(read_single(body))
            read_only = is_read_only(request)
            if not read_only:
                self._service.submit(request, partial(self._answer, txn_fields, reply), caller=caller)
        except Exception as error:
            reply(*refused(error))
            return
        if read_only:
            self.later(self._read(self._service.read_txn(request, caller=caller), txn_fields), reply)

    def range(self, body: bytes, reply: HttpReply, caller: Caller) -> None:
        try:
            request = decode_range(read_single(body))
            result = self._service.range_now(request, caller=caller)
            if result is not None:
                text = range_fields(result, self.header.text(result.revision, self._service.group.term))
        except Exception as error:
            reply(*refused(error))
            return
        if result is not None:
            reply(200, text.encode())
        else:
            self.later(self._read(self._service.range(request, caller=caller), range_fields), reply)

    # Responses.

    def _answer(self, fields: Fields, reply: HttpReply, result: Any) -> None:
        if isinstance(result, Exception):
            reply(*refused(result))
        else:
            reply(200, fields(result, self.header.text(result.revision, self._service.group.term)).encode())

    async def _read(self, result: Awaitable[Any], fields: Fields) -> str:
        found = await result
        return fields(found, self.header.text(found.revision, self._service.group.term))

    def later(self, answer: Awaitable[str], reply: HttpReply) -> None:
        task = asyncio.get_running_loop().create_task(_answer_later(answer, reply))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _answer_later(answer: Awaitable[str], reply: HttpReply) -> None:
    try:
        text = await answer
    except Exception as error:
        reply(*refused(error))
    else:
        reply(200, text.encode())
