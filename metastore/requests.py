"""The requests of the metadata store: frozen values, checked against the limits before they are proposed.

Keys and values are bytes. A range is [key, range_end): an empty `range_end` means the single key, b"\\0" means every
key from `key` on (etcd's convention, shared by both APIs); a prefix is a range that ends at the prefix + 1.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

FROM_KEY = b"\0"


def prefix_end(prefix: bytes) -> bytes:
    """The first key after every key with this prefix; FROM_KEY if there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else FROM_KEY


@dataclass(frozen=True, slots=True)
class RequestId:
    """Makes a write exactly-once (M3): the client's id, and a sequence that the client never reuses."""

    client: str
    sequence: int


class SortTarget(enum.IntEnum):
    KEY = 0
    VERSION = 1
    CREATE = 2
    MOD = 3
    VALUE = 4


class SortOrder(enum.IntEnum):
    NONE = 0
    ASCEND = 1
    DESCEND = 2


@dataclass(frozen=True, slots=True)
class Put:
    key: bytes
    value: bytes = b""
    lease: int = 0
    prev_kv: bool = False
    ignore_value: bool = False
    ignore_lease: bool = False


@dataclass(frozen=True, slots=True)
class DeleteRange:
    key: bytes
    range_end: bytes = b""
    prev_kv: bool = False


@dataclass(frozen=True, slots=True)
class Range:
    """A read. `revision` 0 reads the latest state; `limit` 0 means no limit (count covers the whole range).

    `exact_count` False lets a limited read stop at its limit: count is then at most `limit` + 1.
    """

    key: bytes
    range_end: bytes = b""
    limit: int = 0
    revision: int = 0
    sort_order: SortOrder = SortOrder.NONE
    sort_target: SortTarget = SortTarget.KEY
    serializable: bool = False
    keys_only: bool = False
    count_only: bool = False
    min_mod_revision: int = 0
    max_mod_revision: int = 0
    min_create_revision: int = 0
    max_create_revision: int = 0
    exact_count: bool = True


class CompareTarget(enum.IntEnum):
    VERSION = 0
    CREATE = 1
    MOD = 2
    VALUE = 3
    LEASE = 4


class CompareResult(enum.IntEnum):
    EQUAL = 0
    GREATER = 1
    LESS = 2
    NOT_EQUAL = 3


@dataclass(frozen=True, slots=True)
class Compare:
    """Holds for a key, or for every key of a range (`range_end`). A missing key has 0 everywhere and no value."""

    key: bytes
    target: CompareTarget
    result: CompareResult
    operand: int | bytes
    range_end: bytes = b""


@dataclass(frozen=True, slots=True)
class Txn:
    """All of `success` if every compare holds, else all of `failure`; one revision for all of its writes."""

    compare: tuple[Compare, ...] = ()
    success: tuple[Put | DeleteRange | Range | Txn, ...] = ()
    failure: tuple[Put | DeleteRange | Range | Txn, ...] = ()


@dataclass(frozen=True, slots=True)
class Compact:
    revision: int


@dataclass(frozen=True, slots=True)
class LeaseGrant:
    """`id` 0 lets the store choose one. `Limits` has the shortest and the longest `ttl_ms`."""

    ttl_ms: int
    id: int = 0


def ttl_ms_of(ttl_s: float) -> int:
    """The `ttl_ms` for a time in seconds. A time out of range stays out of range, so it is refused later. Raises
    ValueError for NaN, TypeError for anything that is no number."""
    if not isinstance(ttl_s, int | float):
        raise TypeError(f"the time of a lease is a number of seconds, not {type(ttl_s).__name__}")
    if ttl_s != ttl_s:
        raise ValueError("the time of a lease is a number of seconds, not NaN")
    return round(max(-TTL_S_BOUND, min(ttl_s, TTL_S_BOUND)) * 1000)


TTL_S_BOUND = 1 << 53


@dataclass(frozen=True, slots=True)
class LeaseRevoke:
    id: int


@dataclass(frozen=True, slots=True)
class LeaseKeepAlive:
    id: int


@dataclass(frozen=True, slots=True)
class LeaseExpire:
    """Proposed by the leader: removes those of `ids` that have expired by the stamp of this command (M5)."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EvictResults:
    """Proposed by the leader: remove the stored results of clients idle since before `clock_ms` (M3)."""

    clock_ms: int


@dataclass(frozen=True, slots=True)
class DisarmAlarm:
    """Clear the quota alarm if the store is below its quota again (M8)."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Advances the replicated clock while leases run and nothing else is written (M5)."""


@dataclass(frozen=True, slots=True)
class Pin:
    """Keeps MM at or below `revision` for `ttl_ms` of the replicated clock (M6); repeating the id renews it."""

    id: str
    revision: int
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class Unpin:
    id: str


@dataclass(frozen=True, slots=True)
class FoundCluster:
    """Proposed by the first leader: the permanent id of the cluster. Of several, the first one counts."""

    cluster_id: str


@dataclass(frozen=True, slots=True)
class BeginGeneration:
    """Written into the log by a forced new cluster: a break of history. No effect unless the generation is higher."""

    generation: int


@dataclass(frozen=True, slots=True)
class SystemWrite:
    """Written by nodes, never by clients: (name, value) of records about the cluster (`system_records.py`).

    `expected`: (name, version) of every record on which the decision is based; if one has changed, nothing is written.
    """

    expected: tuple[tuple[str, int], ...]
    records: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class CopyChunk:
    """Write the rows of a staged chunk to their keys and delete the chunk (`staged_rows.py`).

    `manifest`: a key that exists since the revision `opened`; else nothing happens. The rows are in [key, range_end).
    """

    manifest: bytes
    opened: int
    chunk: bytes
    key: bytes
    range_end: bytes


Write = Put | DeleteRange | Txn | Compact | LeaseGrant | LeaseRevoke | LeaseKeepAlive | LeaseExpire | CopyChunk
Command = Write | EvictResults | DisarmAlarm | Tick | Pin | Unpin | FoundCluster | BeginGeneration | SystemWrite


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """`start_revision` 0 starts after the present revision."""

    key: bytes
    range_end: bytes = b""
    start_revision: int = 0
    prev_kv: bool = False
    progress_notify: bool = False
    filters: frozenset[str] = field(default_factory=frozenset)  # "put" and/or "delete" are omitted
