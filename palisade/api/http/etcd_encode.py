"""Answers of etcd's JSON paths: bytes as etcd 3.4's gateway writes them.

Bytes are base64, int64 a string, and a field that has its default (zero, false, empty) is left out. The order of the
fields is that of etcd's proto files.
"""

from __future__ import annotations

import json
from binascii import b2a_base64
from collections.abc import Iterable, Sequence

from palisade.metastore.results import (
    DeleteRangeResult,
    Event,
    KeyValue,
    LeaseInfo,
    LeaseResult,
    PutResult,
    RangeResult,
    TxnResult,
)
from palisade.raftgroup.membership import Member, MemberRole

NestedResult = PutResult | DeleteRangeResult | RangeResult | TxnResult


def base64_text(value: bytes) -> str:
    return b2a_base64(value, newline=False).decode("ascii")


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


def inner_header(revision: int) -> str:
    """Of an operation in a transaction."""
    return f'"header":{{"revision":"{revision}"}}'


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


def put_fields(result: PutResult, header: str) -> str:
    if result.prev_kv is None:
        return f"{{{header}}}"
    return f'{{{header},"prev_kv":{key_value(result.prev_kv)}}}'


def delete_fields(result: DeleteRangeResult, header: str) -> str:
    text = f"{{{header}"
    if result.deleted:
        text += f',"deleted":"{result.deleted}"'
    if result.prev_kvs:
        text += f',"prev_kvs":[{",".join(map(key_value, result.prev_kvs))}]'
    return text + "}"


def range_fields(result: RangeResult, header: str) -> str:
    text = f"{{{header}"
    if result.kvs:
        text += f',"kvs":[{",".join(map(key_value, result.kvs))}]'
    if result.more:
        text += ',"more":true'
    if result.count:
        text += f',"count":"{result.count}"'
    return text + "}"


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


_EMPTY_HEADER = '"header":{}'


def lease_fields(result: LeaseResult, header: str) -> str:
    """Of grant and keep-alive. A time to live of 0, of a lease that is gone, is left out. etcd has whole seconds, and
    0 means the end of a lease: a fraction is rounded up."""
    text = f'{{{header},"ID":"{result.id}"'
    return text + (f',"TTL":"{-(-result.ttl_ms // 1000)}"}}' if result.ttl_ms else "}")


def lease_info_fields(info: LeaseInfo, header: str, with_keys: bool) -> str:
    text = f'{{{header},"ID":"{info.id}"'
    if info.ttl_ms >= 1000:
        text += f',"TTL":"{info.ttl_ms // 1000}"'  # the remaining time: rounded down, as in etcd
    if info.granted_ttl_ms:
        text += f',"grantedTTL":"{-(-info.granted_ttl_ms // 1000)}"'
    if with_keys and info.keys:
        text += f',"keys":[{",".join(quoted(key) for key in info.keys)}]'
    return text + "}"


def quoted(value: bytes) -> str:
    return f'"{base64_text(value)}"'


def leases_fields(ids: Sequence[int], header: str) -> str:
    if not ids:
        return f"{{{header}}}"
    return f'{{{header},"leases":[{",".join(_lease_status(id_) for id_ in ids)}]}}'


def _lease_status(lease_id: int) -> str:
    return f'{{"ID":"{lease_id}"}}'


def event(change: Event) -> str:
    kind = '"type":"DELETE",' if change.delete else ""
    before = f',"prev_kv":{key_value(change.prev_kv)}' if change.prev_kv is not None else ""
    return f'{{{kind}"kv":{key_value(change.kv)}{before}}}'


def watch_fields(
    header: str,
    watch_id: int,
    *,
    created: bool = False,
    canceled: bool = False,
    compact_revision: int = 0,
    cancel_reason: str = "",
    events: Iterable[Event] = (),
) -> str:
    """One message of a watch stream, without its envelope."""
    text = f"{{{header}"
    if watch_id:
        text += f',"watch_id":"{watch_id}"'
    if created:
        text += ',"created":true'
    if canceled:
        text += ',"canceled":true'
    if compact_revision:
        text += f',"compact_revision":"{compact_revision}"'
    if cancel_reason:
        text += f',"cancel_reason":{json.dumps(cancel_reason)}'
    listed = ",".join(map(event, events))
    return f'{text},"events":[{listed}]}}' if listed else text + "}"


def result_line(fields: str) -> bytes:
    """One message of a stream, as the gateway wraps it."""
    return f'{{"result":{fields}}}\n'.encode()


def error_fields(message: str, code: int) -> bytes:
    text = json.dumps(message)
    return f'{{"error":{text},"message":{text},"code":{code}}}'.encode()


def member(number: int, each: Member) -> str:
    """An entry of the member list."""
    peer, http = each.addresses.get("peer"), each.addresses.get("http")
    text = f'{{"ID":"{number}","name":{json.dumps(each.id)}'
    if peer:
        text += f',"peerURLs":[{json.dumps("http://" + peer)}]'
    if http:
        text += f',"clientURLs":[{json.dumps("http://" + http)}]'
    return text + (',"isLearner":true}' if each.role is MemberRole.LEARNER else "}")
