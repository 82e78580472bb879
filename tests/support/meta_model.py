"""A naive metadata store: a whole copy of the keys per revision, and the rules written as plainly as possible.

Slow, unlimited, in memory; it has no tables, digests or quota. Where it and the real one differ, one of them is wrong.
"""

from __future__ import annotations

from typing import Any

from palisade.metastore.errors import (
    Compacted,
    DuplicateKey,
    FutureRevision,
    InvalidRequest,
    LeaseExists,
    LeaseNotFound,
    LeaseTtlInvalid,
    MetastoreError,
    ResultEvicted,
)
from palisade.metastore.requests import (
    Compact,
    DeleteRange,
    DisarmAlarm,
    EvictResults,
    LeaseExpire,
    LeaseGrant,
    LeaseKeepAlive,
    LeaseRevoke,
    Pin,
    Put,
    Range,
    RequestId,
    Tick,
    Txn,
    Unpin,
    WatchRequest,
)
from palisade.metastore.results import (
    CompactResult,
    DoneResult,
    Event,
    LeaseResult,
    PinResult,
    RangeResult,
    RevisionEvents,
)
from tests.support.store_rules import Execution, State, check_kept, inside, operations, taken

PIN_LIFE_MS = 3_600_000


class Model:
    def __init__(self) -> None:
        self.clock_ms = 0
        self.states: list[State] = [{}, {}]
        self.events: list[list[Event]] = [[], []]
        self.compacted = -1
        self.wanted = -1
        self.leases: dict[int, tuple[int, int]] = {}
        self.pins: dict[str, tuple[int, int, int]] = {}
        self.results: dict[str, dict[int, Any]] = {}
        self.floors: dict[str, int] = {}
        self.active: dict[str, int] = {}

    @property
    def revision(self) -> int:
        return len(self.states) - 1

    @property
    def minimal_revision(self) -> int:
        return max(1, self.compacted)

    # Commands

    def do(self, request: Any, request_id: RequestId | None) -> Any:
        """The result, or the refusal as a value."""
        if request_id is None:
            return self.outcome(request)
        client, sequence = request_id.client, request_id.sequence
        if sequence <= self.floors.get(client, 0):
            return ResultEvicted("")
        known = self.results.get(client, {})
        if sequence in known:
            return known[sequence]
        result = self.outcome(request)
        if sequence > self.floors.get(client, 0):
            self.results.setdefault(client, {})[sequence] = result
            self.active[client] = self.clock_ms
        return result

    def outcome(self, request: Any) -> Any:
        try:
            return getattr(self, type(request).__name__.lower())(request)
        except MetastoreError as error:
            return error

    def put(self, request: Put) -> Any:
        return self.single(request)

    def deleterange(self, request: DeleteRange) -> Any:
        return self.single(request)

    def single(self, request: Any) -> Any:
        if isinstance(request, Put) and request.lease and request.lease not in self.leases:
            raise LeaseNotFound("")
        self.admit(request)
        return self.execute(request)

    def txn(self, request: Txn) -> Any:
        self.writes(request)
        (path,) = taken(self.states[-1], request)
        for operation in sorted(operations(path), key=lambda operation: isinstance(operation, Range)):
            self.admit(operation)
        return self.execute(path)

    def writes(self, request: Txn) -> list[tuple[bytes, bytes, bool]]:
        """(key, end, is put) of both branches. Within a branch no put overlaps with a write of another operation."""
        return [write for branch in (request.success, request.failure) for write in self.branch_writes(branch)]

    def branch_writes(self, branch: Any) -> list[tuple[bytes, bytes, bool]]:
        parts: list[list[tuple[bytes, bytes, bool]]] = []
        for operation in branch:
            if isinstance(operation, Txn):
                parts.append(self.writes(operation))
            elif isinstance(operation, Put):
                parts.append([(operation.key, b"", True)])
            elif isinstance(operation, DeleteRange):
                parts.append([(operation.key, operation.range_end, False)])
        for number, part in enumerate(parts):
            others = [write for other in parts[:number] + parts[number + 1 :] for write in other]
            for key, _, is_put in part:
                if is_put and any(inside(key, start, end) for start, end, _ in others):
                    raise DuplicateKey("")
        return [write for part in parts for write in part]

    def admit(self, request: Any) -> None:
        if isinstance(request, Range):
            self.check_revision(request.revision)
        if isinstance(request, Put):
            check_kept(self.states[-1], request)
            if request.lease and request.lease not in self.leases:
                raise LeaseNotFound("")

    def check_revision(self, revision: int) -> None:
        if revision > self.revision:
            raise FutureRevision("")
        if 0 < revision < self.compacted:
            raise Compacted("", self.compacted)

    def execute(self, path: Any) -> Any:
        execution = self.begin()
        result = execution.run(path)
        self.end(execution)
        return result

    def begin(self) -> Execution:
        return Execution(self.states[-1], self.revision, self.revision + 1, self.states)

    def end(self, execution: Execution) -> None:
        if execution.events:
            self.states.append(execution.now)
            self.events.append(execution.events)

    # Reads

    def range(self, request: Range) -> RangeResult:
        self.check_revision(request.revision)
        return self.begin().run(request)

    def watch(self, request: WatchRequest) -> list[RevisionEvents]:
        """Everything from its start to the present."""
        found = []
        for revision in range(max(request.start_revision, self.minimal_revision), self.revision + 1):
            events = tuple(
                self.shown(request, revision, event)
                for event in self.events[revision]
                if inside(event.kv.key, request.key, request.range_end)
                and ("delete" if event.delete else "put") not in request.filters
            )
            if events:
                found.append(RevisionEvents(revision, events))
        return found

    def shown(self, request: WatchRequest, revision: int, event: Event) -> Event:
        return event if request.prev_kv and revision > self.compacted else event._replace(prev_kv=None)

    # Leases, compaction, pins, results

    def leasegrant(self, request: LeaseGrant) -> Any:
        if request.ttl_ms < 100:
            raise LeaseTtlInvalid("")
        if request.id in self.leases:
            raise LeaseExists("")
        self.leases[request.id] = (request.ttl_ms, self.clock_ms + request.ttl_ms)
        return LeaseResult(self.revision, request.id, request.ttl_ms)

    def leasekeepalive(self, request: LeaseKeepAlive) -> Any:
        ttl_ms, deadline = self.leases.get(request.id, (0, 0))
        if deadline <= self.clock_ms:
            raise LeaseNotFound("")
        self.leases[request.id] = (ttl_ms, self.clock_ms + ttl_ms)
        return LeaseResult(self.revision, request.id, ttl_ms)

    def leaserevoke(self, request: LeaseRevoke) -> Any:
        if request.id not in self.leases:
            raise LeaseNotFound("")
        self.remove(request.id)
        return LeaseResult(self.revision, request.id, 0)

    def leaseexpire(self, request: LeaseExpire) -> Any:
        gone = [lease for lease in request.ids if lease in self.leases and self.leases[lease][1] <= self.clock_ms]
        for lease in gone:
            self.remove(lease)
        return DoneResult(self.revision, len(gone))

    def remove(self, lease: int) -> None:
        execution = self.begin()
        for key in self.keys_of(lease):
            execution.drop(key)
        self.end(execution)
        del self.leases[lease]

    def keys_of(self, lease: int) -> tuple[bytes, ...]:
        return tuple(sorted(key for key, kv in self.states[-1].items() if kv.lease == lease))

    def compact(self, request: Compact) -> Any:
        if request.revision <= self.compacted:
            raise Compacted("", self.minimal_revision)
        if request.revision > self.revision:
            raise FutureRevision("")
        self.wanted = max(self.wanted, request.revision)
        self.pins = self.live_pins()
        self.compacted = max(self.compacted, min([request.revision, *(pin[0] for pin in self.pins.values())]))
        return CompactResult(self.revision, self.minimal_revision)

    def live_pins(self) -> dict[str, tuple[int, int, int]]:
        return {name: pin for name, pin in self.pins.items() if pin[1] > self.clock_ms}

    def pin(self, request: Pin) -> Any:
        if request.revision < self.minimal_revision:
            raise Compacted("", self.minimal_revision)
        if request.revision > self.revision:
            raise FutureRevision("")
        if self.wanted <= self.compacted:
            self.pins = self.live_pins()
        start = self.pins.get(request.id, (0, 0, self.clock_ms))[2]
        ends = min(self.clock_ms + request.ttl_ms, start + PIN_LIFE_MS)
        if ends <= self.clock_ms:
            raise InvalidRequest("")
        self.pins[request.id] = (request.revision, ends, start)
        return PinResult(self.revision, self.minimal_revision, ends - self.clock_ms)

    def unpin(self, request: Unpin) -> Any:
        self.pins.pop(request.id, None)
        return PinResult(self.revision, self.minimal_revision, 0)

    def evictresults(self, request: EvictResults) -> Any:
        before = min(request.clock_ms, self.clock_ms)
        idle = [client for client, last in self.active.items() if last < before]
        for client in idle:
            self.floors[client] = max(self.results.pop(client))
            del self.active[client]
        return DoneResult(self.revision, len(idle))

    def disarmalarm(self, _: DisarmAlarm) -> Any:
        return DoneResult(self.revision)

    def tick(self, _: Tick) -> Any:
        return DoneResult(self.revision)
