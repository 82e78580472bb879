"""The results of the metadata store. `revision` is the revision of the store at that operation (etcd's header)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class KeyValue(NamedTuple):
    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int


class Event(NamedTuple):
    """One change of one key. For a delete, `kv` has the key and mod_revision only."""

    delete: bool
    kv: KeyValue
    prev_kv: KeyValue | None


@dataclass(frozen=True, slots=True)
class RevisionEvents:
    """All events of one revision that match a watch; never split (M4)."""

    revision: int
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class PutResult:
    revision: int
    prev_kv: KeyValue | None = None


@dataclass(frozen=True, slots=True)
class DeleteRangeResult:
    revision: int
    deleted: int
    prev_kvs: tuple[KeyValue, ...] = ()


@dataclass(frozen=True, slots=True)
class RangeResult:
    revision: int
    kvs: tuple[KeyValue, ...]
    more: bool
    count: int


@dataclass(frozen=True, slots=True)
class TxnResult:
    revision: int
    succeeded: bool
    results: tuple[PutResult | DeleteRangeResult | RangeResult | TxnResult, ...]


@dataclass(frozen=True, slots=True)
class CompactResult:
    """`minimal_revision` is MM: the oldest revision that can still be read."""

    revision: int
    minimal_revision: int


@dataclass(frozen=True, slots=True)
class LeaseResult:
    """Of grant, keep-alive and revoke. `ttl_ms` is the full time of the lease; 0 for a revoked one."""

    revision: int
    id: int
    ttl_ms: int

    @property
    def ttl_s(self) -> float:
        return self.ttl_ms / 1000


@dataclass(frozen=True, slots=True)
class LeaseInfo:
    revision: int
    id: int
    ttl_ms: int
    """The remaining time."""
    granted_ttl_ms: int
    keys: tuple[bytes, ...]

    @property
    def ttl_s(self) -> float:
        return self.ttl_ms / 1000

    @property
    def granted_ttl_s(self) -> float:
        return self.granted_ttl_ms / 1000


@dataclass(frozen=True, slots=True)
class DoneResult:
    """Of commands that only the store itself proposes. `count`: the number of removed items."""

    revision: int
    count: int = 0


@dataclass(frozen=True, slots=True)
class PinResult:
    """`minimal_revision` is MM at that moment; `remaining_ms` is 0 after an unpin."""

    revision: int
    minimal_revision: int
    remaining_ms: int


Result = PutResult | DeleteRangeResult | RangeResult | TxnResult | CompactResult | LeaseResult | DoneResult | PinResult
