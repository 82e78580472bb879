"""The limits of M8, and how long what is past is kept (M6).

`Limits` take part in `apply`: they are the same on every replica, or the replicas diverge. `fingerprint` is what
two nodes compare before they trust each other. `Retention` is read by the leader alone, who proposes what
follows from it.
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
    """Of the logical size: what the retained revisions hold, not what the files take."""
    lease_ttl_s_max: int = 9_000_000_000
    client_bytes_max: int = 128
    client_results_max: int = 4096
    """How far behind its newest sequence a client may still retry (M3)."""
    client_results_bytes_max: int = 16 * MIB
    evicted_results_max: int = 16_384
    """About how many sequences one EvictResults forgets: no command may stall the others."""
    pins_max: int = 256
    pin_ttl_ms_max: int = 10 * 60_000
    pin_life_ms_max: int = 60 * 60_000

    def fingerprint(self) -> str:
        """Equal on two nodes if and only if they refuse the same things."""
        return ",".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))


@dataclass(frozen=True, slots=True)
class Retention:
    """What the leader proposes by itself. Ages are of the replicated clock, which stands still while nobody leads."""

    history_age_ms: int = 3_600_000
    history_revisions: int = 100_000
    compaction_step_revisions: int = 1_000
    """Retention moves MM in steps of this size, or when a tenth more than the age has gathered."""
    client_idle_ms: int = 3_600_000
    tick_ms: int = 500
    expired_leases_max: int = 1_000
    """How many leases one LeaseExpire names."""
