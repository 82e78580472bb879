"""The state machine of the meta storage: commands in the order of the log in, results and one new state out.

Pure: no clock, no random source, no disk, no network. Given the same entries, every replica makes the same tables
(but for how far physical removal has come), digests and results. A command that can't be executed is refused with a
result that all replicas share; what only one of them could see (a corrupt store, a broken invariant, a bug) raises
out of `apply`, and the node stops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from metastore import mvcc
from metastore.check import check
from metastore.clock import StampClock
from metastore.codec import PLAIN_PUT, decode_fields, encode_result, unpack_command
from metastore.compaction import Compactor
from metastore.digest import BucketSums, Digest
from metastore.errors import MetastoreError, QuotaExceeded, StoreCorrupt
from metastore.exactly_once import ResultBook
from metastore.housekeeping import due_commands
from metastore.lease import LeaseBook
from metastore.limits import Limits, Retention
from metastore.ordered_map import OrderedMap
from metastore.plain_put import make_plain_put
from metastore.range_read import read_range
from metastore.requests import (
    Command,
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
)
from metastore.result_codec import PUT, Wire, refusal
from metastore.results import (
    CompactResult,
    DoneResult,
    KeyValue,
    LeaseInfo,
    LeaseResult,
    PinResult,
    RangeResult,
    Result,
    TxnResult,
)
from metastore.revision_writer import RevisionWriter
from metastore.state import State
from metastore.txn import Executor, require_room
from metastore.validation import check_request, check_request_id
from metastore.watch import WatchHub

COLLECT_PER_COMMAND = 4
COLLECT_PER_BATCH = 64


class MetaStore:
    """`raftgroup.ports.StateMachine` but for snapshots, over any OrderedMap. Not thread-safe: one loop owns it."""

    def __init__(self, tables: OrderedMap, limits: Limits | None = None, retention: Retention | None = None) -> None:
        self._tables = tables
        self.limits = limits or Limits()
        self.retention = retention or Retention()
        self._state = State(tables)
        self._clock = StampClock(self._state)
        self._buckets = BucketSums(tables)
        self._leases = LeaseBook(tables, self._state)
        self._compactor = Compactor(tables, self._state, self.limits)
        self._results = ResultBook(tables, self._state, self.limits)
        self._changed: list[bytes] = []
        self._writer = RevisionWriter(tables, self._state, self._buckets, self._leases, self._changed)
        self._executor = Executor(tables, self._state, self._leases, self._writer, self.limits)
        self._plain_put = make_plain_put(tables, self._state, self._buckets, self._changed)
        self._position = 0
        self.watches = WatchHub(tables, self._state)
        self._handlers = self._make_handlers()
        roomy = self.limits.request_bytes_max >= self.limits.key_bytes_max + self.limits.value_bytes_max + 64
        self._plain_value_max = self.limits.value_bytes_max if roomy else -1

    def _make_handlers(self) -> dict[type, Callable[[Any], Result]]:
        return {
            Put: self._executor.run,
            DeleteRange: self._executor.run,
            Txn: self._executor.run,
            Compact: self._compact,
            LeaseGrant: self._grant,
            LeaseRevoke: self._revoke,
            LeaseKeepAlive: self._keep_alive,
            LeaseExpire: self._expire,
            EvictResults: self._evict,
            DisarmAlarm: self._disarm,
            Tick: lambda _: DoneResult(self._state.revision),
            Pin: self._pin,
            Unpin: self._unpin,
        }

    # What the log does

    def apply(self, index: int, term: int, stamp: Sequence[int], commands: Sequence[bytes]) -> list[Wire]:
        """One wire result per command. Any exception means that this replica can't go on: stop the node."""
        state = self._state
        check(index > state.index, f"entry {index} is applied after entry {state.index}: each index once, in order")
        before = state.revision
        state.index, state.term = index, term
        self._clock.accept(stamp)
        self._position = 0
        command = self._command
        results = [command(packed) for packed in commands]
        self._buckets.save(self._tables)
        self._results.save()
        if self._compactor.pending:
            self._compactor.collect(COLLECT_PER_BATCH + COLLECT_PER_COMMAND * len(commands))
        state.save_clock(self._tables)
        state.save(self._tables)
        changed = list(self._changed)
        self._changed.clear()
        self.watches.tell(changed, before)
        return results

    def skip(self, index: int, term: int) -> None:
        """An entry that holds nothing for this machine."""
        check(index > self._state.index, f"entry {index} is skipped after entry {self._state.index}")
        self._state.index, self._state.term = index, term
        self._state.save_applied(self._tables)

    def lead(self, now: float, wall_ms: int) -> None:
        """This node stamps from now on; `now` in seconds of its monotonic clock. Wall time plays no part in it."""
        self._clock.lead(now)

    def stamp(self, now: float, wall_ms: int) -> list[int]:
        return self._clock.stamp(now, wall_ms)

    def clock_ms(self, now: float) -> int:
        """The replicated clock as this leader would stamp it now: what `due_commands` wants."""
        return self._clock.clock_ms(now)

    def due_commands(self, clock_ms: int) -> list[Command]:
        """What the leader should propose now; proposing one twice does no harm."""
        return due_commands(
            self._state, self._leases, self._compactor, self._results, self.limits, self.retention, clock_ms
        )

    def collect(self, events_max: int = 1000) -> bool:
        """One bounded slice of physical removal, for idle moments. True while there is more to do."""
        self._compactor.collect(events_max)
        return self._compactor.pending

    def reload(self) -> None:
        """The tables were replaced (a snapshot): forget what is in memory, and tell every watcher."""
        before = self._state.revision
        self._state.load(self._tables)
        self._buckets.load(self._tables)
        self._leases.load()
        self._compactor.load()
        self._results.load()
        self.watches.tell_all(before)

    # What readers see

    @property
    def applied(self) -> tuple[int, int]:
        return (self._state.index, self._state.term)

    @property
    def revision(self) -> int:
        """LM, the latest revision. 1 for an empty store."""
        return self._state.revision

    @property
    def minimal_revision(self) -> int:
        """MM, the oldest revision that can be read and watched."""
        return self._state.minimal_revision

    @property
    def key_count(self) -> int:
        return self._state.keys

    @property
    def size_bytes(self) -> int:
        """The logical size, which the quota limits; equal on all replicas."""
        return self._state.size

    @property
    def alarm(self) -> bool:
        """The quota is exhausted: only what takes no room is accepted."""
        return self._state.alarm

    @property
    def collecting(self) -> bool:
        """Whether physical removal lags behind MM."""
        return self._compactor.pending

    def get(self, key: bytes) -> KeyValue | None:
        """The latest version of one key, the shortest way."""
        return mvcc.get(self._tables, key)

    def range(self, request: Range) -> RangeResult:
        """Raises Compacted, FutureRevision. The caller has seen to `check_request` and, if needed, a read barrier."""
        return read_range(self._tables, self._state, request, self._state.revision)

    def read_txn(self, request: Txn) -> TxnResult:
        """A transaction for which `is_read_only` holds."""
        return self._executor.read(request)

    def leases(self) -> tuple[int, ...]:
        return self._leases.ids()

    def lease_info(self, lease: int) -> LeaseInfo:
        """As of the last applied stamp. Raises LeaseNotFound."""
        granted, _ = self._leases.require(lease)
        remaining, keys = self._leases.remaining_s(lease), self._leases.keys(lease)
        return LeaseInfo(self._state.revision, lease, remaining, granted, keys)

    def digest(self) -> Digest:
        return Digest(self._state.revision, self._state.chain, self._buckets.packed())

    def chain_at(self, revision: int) -> bytes | None:
        """The chain digest after a retained revision; None for another one."""
        trailer = self._compactor.trailer(revision)
        return trailer.chain if trailer else None

    # One command

    def _command(self, packed: bytes) -> Wire:
        self._position += 1
        try:
            fields = unpack_command(packed)
            if type(fields) is list and len(fields) == 4 and fields[0] == PLAIN_PUT:
                result = self._try_plain_put(fields)
                if result is not None:
                    return result
            request, request_id = decode_fields(fields)
        except StoreCorrupt:
            raise
        except MetastoreError as error:
            return refusal(error)
        return self._once(request, request_id) if request_id is not None else self._execute(request)

    def _try_plain_put(self, fields: list[Any]) -> Wire | None:
        """None where the long way has to be taken, be it to refuse."""
        _, rid, key, value = fields
        if (
            rid is not None
            or type(key) is not bytes
            or type(value) is not bytes
            or not 0 < len(key) <= self.limits.key_bytes_max
            or len(value) > self._plain_value_max
            or self._state.alarm
        ):
            return None
        revision = self._plain_put(key, value)
        if not revision:
            return None
        if self._state.size > self.limits.quota_bytes:
            self._state.alarm = True
        return (PUT, revision)

    def _once(self, request: Command, request_id: RequestId) -> Wire:
        """Execute it, unless its result is known already (M3)."""
        try:
            check_request_id(request_id, self.limits)
            remembered: Wire | None = self._results.find(request_id)
        except StoreCorrupt:
            raise
        except MetastoreError as error:
            return refusal(error)
        if remembered is not None:
            return remembered
        result = self._execute(request)
        self._results.remember(request_id, result)
        self._watch_quota()
        return result

    def _execute(self, request: Command) -> Wire:
        """A refusal leaves no trace: it is only possible before the first write."""
        try:
            check_request(request, self.limits)
            result = encode_result(self._handlers[type(request)](request))
        except StoreCorrupt:
            raise
        except MetastoreError as error:
            check(not self._writer.dirty, f"{type(request).__name__} was refused half-way: {error}")
            return refusal(error)
        self._watch_quota()
        return result

    def _watch_quota(self) -> None:
        """The write that crosses the quota is the last one: refusals never change the alarm."""
        if self._state.size > self.limits.quota_bytes:
            self._state.alarm = True

    # The commands that are not operations on keys

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
        require_room(self._state, self.limits)
        self._leases.check_grant(request.id, request.ttl_s, self.limits)
        lease = request.id or self._leases.choose_id(self._position)
        self._leases.grant(lease, request.ttl_s)
        return LeaseResult(self._state.revision, lease, request.ttl_s)

    def _keep_alive(self, request: LeaseKeepAlive) -> LeaseResult:
        ttl_s = self._leases.keep_alive(request.id)
        return LeaseResult(self._state.revision, request.id, ttl_s)

    def _revoke(self, request: LeaseRevoke) -> LeaseResult:
        self._leases.require(request.id)
        self._remove_lease(request.id)
        return LeaseResult(self._state.revision, request.id, 0)

    def _remove_lease(self, lease: int) -> None:
        """Its keys vanish in one revision, in their order; without keys there is none."""
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
        if self._state.size > self.limits.quota_bytes:
            raise QuotaExceeded(
                f"the store still holds {self._state.size} bytes of {self.limits.quota_bytes}: delete keys and compact"
            )
        was = self._state.alarm
        self._state.alarm = False
        return DoneResult(self._state.revision, int(was))
