"""The leader's own proposals: expired leases, retention, eviction of results, clearing the alarm, ticks.

They depend only on replicated state and the leader's clock, and are executed only through the log, where each command
is checked again. Thus a wrong, late or repeated proposal is harmless.
"""

from __future__ import annotations

from palisade.metastore.compaction import Compactor
from palisade.metastore.lease import LeaseBook
from palisade.metastore.limits import Limits, Retention
from palisade.metastore.request_results import RequestResults
from palisade.metastore.requests import Command, Compact, DisarmAlarm, EvictResults, LeaseExpire, Tick
from palisade.metastore.state import StoreState

DISARM_PERCENT = 95
"""The alarm is cleared below this part of the quota, so that it does not flap."""
STAMP_ERROR_MS = 1
"""The stamp of a grant is rounded down to a millisecond, so a whole ttl has certainly passed only one millisecond after
the deadline. A holder that counts from the moment at which it sent its renewal must never count longer than the
leader."""


def due_commands(
    state: StoreState,
    leases: LeaseBook,
    compactor: Compactor,
    results: RequestResults,
    limits: Limits,
    retention: Retention,
    clock_ms: int,
) -> list[Command]:
    """`clock_ms`: the replicated clock that the leader would stamp now."""
    due: list[Command] = []
    expired = leases.run_out(clock_ms - STAMP_ERROR_MS, retention.expired_leases_max)
    if expired:
        due.append(LeaseExpire(expired))
    target = compactor.due(clock_ms, retention)
    if target is not None:
        due.append(Compact(target))
    idle_since = clock_ms - retention.client_idle_ms
    if results.idle_before(idle_since):
        due.append(EvictResults(idle_since))
    if state.alarm and state.size * 100 < limits.quota_bytes * DISARM_PERCENT:
        due.append(DisarmAlarm())
    if not due and len(leases) and clock_ms - state.clock_ms >= retention.tick_ms:
        due.append(Tick())
    return due
