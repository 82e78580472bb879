"""Requests about leases of etcd's JSON paths, and their responses (`etcd_keys.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from palisade.api.http.etcd_keys import base64_text
from palisade.api.http.protobuf_json import (
    JsonMessage,
    as_bool,
    as_int64,
)
from palisade.metastore.requests import (
    LeaseGrant,
    ttl_ms_of,
)
from palisade.metastore.results import (
    LeaseInfo,
    LeaseResult,
)

MIN_LEASE_TTL_S = 2
"""etcd raises shorter times to live to its election timeout: 2 s with its defaults."""
_GRANT = JsonMessage("etcdserverpb.LeaseGrantRequest", {"TTL": as_int64, "ID": as_int64})


def decode_grant(value: Any) -> LeaseGrant:
    found = _GRANT.read(value)
    return LeaseGrant(ttl_ms_of(max(MIN_LEASE_TTL_S, found.get("TTL", 0))), found.get("ID", 0))


def lease_fields(result: LeaseResult, header: str) -> str:
    """The fields of the results of grant and keep-alive. A time to live of 0, of a lease that is gone, is omitted.
    etcd has whole seconds, and 0 means the end of a lease: a fraction is rounded up."""
    text = f'{{{header},"ID":"{result.id}"'
    return text + (f',"TTL":"{-(-result.ttl_ms // 1000)}"}}' if result.ttl_ms else "}")


_LEASE = JsonMessage("etcdserverpb.LeaseRevokeRequest", {"ID": as_int64})


def decode_lease_id(value: Any) -> int:
    id_: int = _LEASE.read(value).get("ID", 0)
    return id_


def revoke_fields(result: LeaseResult, header: str) -> str:
    return f"{{{header}}}"


_TIME_TO_LIVE = JsonMessage("etcdserverpb.LeaseTimeToLiveRequest", {"ID": as_int64, "keys": as_bool})


def decode_time_to_live(value: Any) -> tuple[int, bool]:
    """(lease id, whether its keys are wanted)"""
    found = _TIME_TO_LIVE.read(value)
    return found.get("ID", 0), found.get("keys", False)


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
