"""Messages of etcd's watch stream, in both directions (`etcd_keys.py`)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from palisade.api.http.etcd_keys import key_value
from palisade.api.http.protobuf_json import (
    BadJson,
    JsonMessage,
    as_bool,
    as_bytes,
    as_int64,
    as_list,
)
from palisade.metastore.requests import (
    WatchRequest,
)
from palisade.metastore.results import (
    Event,
)

FILTERS = {"NOPUT": "put", "NODELETE": "delete", 0: "put", 1: "delete"}


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
    """One message of the stream; None for one without a request."""
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


def event(change: Event) -> str:
    kind = '"type":"DELETE",' if change.delete else ""
    before = f',"prev_kv":{key_value(change.prev_kv)}' if change.prev_kv is not None else ""
    return f'{{{kind}"kv":{key_value(change.kv)}{before}}}'


def result_line(fields: str) -> bytes:
    """One message of a stream, as the gateway wraps it."""
    return f'{{"result":{fields}}}\n'.encode()
