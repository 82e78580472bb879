"""Results as JSON, for the commands (--json) and HTTP (/v1). Pure; stable, documented in docs/cli.md.

Bytes are text if they are valid UTF-8, else base64 in a field named `..._base64`. Lease ids are strings, because many
JSON readers lose the low bits of 64-bit numbers.
"""

from __future__ import annotations

import base64
from typing import Any

from palisade.metastore.results import (
    CompactResult,
    DeleteRangeResult,
    Event,
    KeyValue,
    LeaseInfo,
    LeaseResult,
    PutResult,
    RangeResult,
    RevisionEvents,
    TxnResult,
)
from palisade.vault.change import Item


def text_field(name: str, value: bytes) -> dict[str, str]:
    """{"value": "..."}, or {"value_base64": "..."} for bytes that are not text."""
    try:
        return {name: value.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode("ascii")}


def key_value(kv: KeyValue | Item) -> dict[str, Any]:
    shape: dict[str, Any] = {
        **text_field("key", kv.key),
        **text_field("value", kv.value),
        "create_revision": kv.create_revision,
        "mod_revision": kv.mod_revision,
        "version": kv.version,
    }
    return shape | ({"lease": str(kv.lease)} if kv.lease else {})


def put_shape(result: PutResult) -> dict[str, Any]:
    return {"revision": result.revision} | ({"prev_kv": key_value(result.prev_kv)} if result.prev_kv else {})


def delete_shape(result: DeleteRangeResult) -> dict[str, Any]:
    shape: dict[str, Any] = {"revision": result.revision, "deleted": result.deleted}
    return shape | ({"prev_kvs": [key_value(kv) for kv in result.prev_kvs]} if result.prev_kvs else {})


def range_shape(result: RangeResult) -> dict[str, Any]:
    return {
        "revision": result.revision,
        "count": result.count,
        "more": result.more,
        "kvs": [key_value(kv) for kv in result.kvs],
    }


def txn_shape(result: TxnResult) -> dict[str, Any]:
    return {
        "revision": result.revision,
        "succeeded": result.succeeded,
        "results": [operation_shape(each) for each in result.results],
    }


def operation_shape(result: PutResult | DeleteRangeResult | RangeResult | TxnResult) -> dict[str, Any]:
    """The result of one operation of a transaction, named after it."""
    if isinstance(result, PutResult):
        return {"put": put_shape(result)}
    if isinstance(result, DeleteRangeResult):
        return {"delete": delete_shape(result)}
    if isinstance(result, RangeResult):
        return {"range": range_shape(result)}
    return {"txn": txn_shape(result)}


def compact_shape(result: CompactResult) -> dict[str, Any]:
    return {"revision": result.revision, "minimal_revision": result.minimal_revision}


def lease_shape(result: LeaseResult) -> dict[str, Any]:
    return {"id": str(result.id), "ttl_s": seconds(result.ttl_ms), "revision": result.revision}


def seconds(time_ms: int) -> int | float:
    """As a JSON number: without a fraction if it has none."""
    return time_ms / 1000 if time_ms % 1000 else time_ms // 1000


def lease_info_shape(info: LeaseInfo) -> dict[str, Any]:
    return {
        "id": str(info.id),
        "ttl_s": seconds(info.ttl_ms),
        "granted_ttl_s": seconds(info.granted_ttl_ms),
        "keys": [text_field("key", key) for key in info.keys],
    }


def events_shape(events: RevisionEvents) -> dict[str, Any]:
    return {"revision": events.revision, "events": [event_shape(event) for event in events.events]}


def event_shape(event: Event) -> dict[str, Any]:
    kv = (
        text_field("key", event.kv.key) | {"mod_revision": event.kv.mod_revision}
        if event.delete
        else key_value(event.kv)
    )
    shape: dict[str, Any] = {"type": "delete" if event.delete else "put", "kv": kv}
    return shape | ({"prev_kv": key_value(event.prev_kv)} if event.prev_kv else {})
