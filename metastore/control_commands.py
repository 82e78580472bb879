"""Commands that are not operations on keys: leases, compaction, pins, eviction of results, the alarm, the lineage.

None of them raises the revision, except that the end of a lease with keys attached raises it once (as in etcd).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from palisade.metastore.compaction import Compactor
from palisade.metastore.errors import QuotaExceeded
from palisade.metastore.lease import LeaseBook
from palisade.metastore.limits import Limits
from palisade.metastore.lineage import Lineage
from palisade.metastore.request_results import RequestResults
from palisade.metastore.requests import (
    BeginGeneration,
    Compact,
    DisarmAlarm,
    EvictResults,
    FoundCluster,
    LeaseExpire,
    LeaseGrant,
    LeaseKeepAlive,
    LeaseRevoke,
    Pin,
    Tick,
    Unpin,
)
from palisade.metastore.results import CompactResult, DoneResult, LeaseResult, PinResult, Result
from palisade.metastore.revision_writer import RevisionWriter
from palisade.metastore.state import StoreState
from palisade.metastore.txn import require_room


class Control:
    """One handler per command. Each raises its refusals before its first change."""

    __slots__ = ("_compactor", "_leases", "_limits", "_results", "_state", "_writer")

    def __init__(
        self,
        state: StoreState,
        leases: LeaseBook,
        compactor: Compactor,
        results: RequestResults,
        writer: RevisionWriter,
        limits: Limits,
    ) -> None:
        self._state = state
        self._leases = leases
        self._compactor = compactor
        self._results = results
        self._writer = writer
        self._limits = limits

    def handlers(self) -> dict[type, Callable[[Any], Result]]:
        return {
            Compact: self._compact,
            Pin: self._pin,
            Unpin: self._unpin,
            LeaseGrant: self._grant,
            LeaseKeepAlive: self._keep_alive,
            LeaseRevoke: self._revoke,
            LeaseExpire: self._expire,
            EvictResults: self._evict,
            DisarmAlarm: self._disarm,
            FoundCluster: self._found,
            BeginGeneration: self._begin_generation,
            Tick: lambda _: DoneResult(self._state.revision),
        }

    def _compact(self, request: Compact) -> CompactResult:
        self._compactor.compact(request.revision)
        return CompactResult(self._state.revision, self._state.minimal_revision)

    def _pin(self, request: Pin) -> PinResult:
        remaining_ms = self._compactor.pin(request.id, request.revision, request.ttl_ms)
        return PinResult(self._state.revision, self._state.minimal_revision, remaining_ms)

    def _unpin(self, request: Unpin) -> PinResult:
        self._compactor.unpin(request.id)
        return PinResult(self._state.revision, self._state.minimal_revision, 0)

    def _grant(self, request: LeaseGrant) -> LeaseResult:
        require_room(self._state, self._limits)
        self._leases.check_grant(request.id, request.ttl_ms, self._limits)
        lease = request.id or self._leases.choose_id()
        self._leases.grant(lease, request.ttl_ms)
        return LeaseResult(self._state.revision, lease, request.ttl_ms)

    def _keep_alive(self, request: LeaseKeepAlive) -> LeaseResult:
        ttl_ms = self._leases.keep_alive(request.id)
        return LeaseResult(self._state.revision, request.id, ttl_ms)

    def _revoke(self, request: LeaseRevoke) -> LeaseResult:
        self._leases.require(request.id)
        self._remove_lease(request.id)
        return LeaseResult(self._state.revision, request.id, 0)

    def _remove_lease(self, lease: int) -> None:
        """Deletes its keys in one revision, in key order; without keys there is no revision."""
        for key in self._leases.keys(lease):
            self._writer.delete(key)
        self._writer.close()
        self._leases.remove(lease)

    def _expire(self, request: LeaseExpire) -> DoneResult:
        gone = [lease for lease in dict.fromkeys(request.ids) if self._leases.has_run_out(lease)]
        for lease in gone:
            self._remove_lease(lease)
        return DoneResult(self._state.revision, len(gone))

    def _evict(self, request: EvictResults) -> DoneResult:
        return DoneResult(self._state.revision, self._results.evict(min(request.clock_ms, self._state.clock_ms)))

    def _disarm(self, request: DisarmAlarm) -> DoneResult:
        if self._state.size > self._limits.quota_bytes:
            raise QuotaExceeded(
                f"the store still holds {self._state.size} bytes of {self._limits.quota_bytes}: delete keys and compact"
            )
        was = self._state.alarm
        self._state.alarm = False
        return DoneResult(self._state.revision, int(was))

    def _found(self, request: FoundCluster) -> DoneResult:
        """If a second leader, unaware of the first id, proposes another one, it is ignored."""
        lineage = self._state.lineage
        taken = not lineage.cluster_id
        if taken:
            self._state.lineage = Lineage(request.cluster_id, lineage.generation)
        return DoneResult(self._state.revision, int(taken))

    def _begin_generation(self, request: BeginGeneration) -> DoneResult:
        lineage = self._state.lineage
        grows = request.generation > lineage.generation
        if grows:
            self._state.lineage = Lineage(lineage.cluster_id, request.generation)
        return DoneResult(self._state.revision, int(grows))
