"""The limits of M8, and the retention times (M6).

`Limits` are part of `apply`: they must be the same on every replica, or the replicas diverge. Two nodes compare
`fingerprint` before they trust each other. `Retention` is used by the leader alone, which proposes the consequences.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


@dataclass(frozen=True, slots=True)
class Limits:
    key_bytes_max: int = 4 * KIB
    value_bytes_max: int = 1 * MIB
    request_bytes_max: int = 2 * MIB
    txn_operations_max: int = 1024
    txn_depth_max: int = 16
    quota_bytes: int = 8 * GIB
    """Of the logical size: the content of the retained revisions, not the size of the files."""
    lease_ttl_ms_min: int = 100
    """The interval at which a leader looks for expired leases: a shorter lease would live up to twice its time. A lease
    never ends early, however short it is (`state.py`)."""
    lease_ttl_ms_max: int = 9_000_000_000_000
    client_bytes_max: int = 128
    client_results_max: int = 4096
    """How far below its newest sequence a client may still retry (M3)."""
    client_results_bytes_max: int = 16 * MIB
    evicted_results_max: int = 16_384
    """About how many sequences one EvictResults removes: a command must not stall others."""
    pins_max: int = 256
    pin_ttl_ms_max: int = 10 * 60_000
    pin_life_ms_max: int = 60 * 60_000

    def fingerprint(self) -> str:
        """Equal on two nodes if and only if they refuse the same requests."""
        return ",".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))


@dataclass(frozen=True, slots=True)
class Retention:
    """Proposals of the leader. Ages are of the replicated clock, which is paused while there is no leader."""

    history_age_ms: int = 3_600_000
    history_revisions: int = 100_000
    hold_revisions: int = 1_000_000
    """How many further revisions a watermark may hold back (`watermarks.py`)."""
    compaction_step_revisions: int = 1_000
    """Retention moves MM in steps of this size, or when the excess is a tenth of the age."""
    client_idle_ms: int = 3_600_000
    tick_ms: int = 500
    expired_leases_max: int = 1_000
    """Maximum number of leases in one LeaseExpire."""
