"""The state machine of the metadata store: commands in log order in, results and one new state out.

Pure: no clock, no random source, no disk, no network. From the same entries, every replica computes the same tables
(except for the progress of physical removal), digests and results. A command that cannot be executed is refused with a
result that all replicas share. A fault that only one replica has (a corrupt store, a broken invariant, a bug) raises
from `apply`, and the node stops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from palisade.base.digest import digest_bytes
from palisade.base.invariant import InvariantViolated, check
from palisade.metastore import mvcc
from palisade.metastore.change_feed import MOD, ChangeFeed
from palisade.metastore.changes import AppliedEntry, EntryChanges, Rows, StoreListener
from palisade.metastore.command_codec import (
    PUT_RESULT,
    SERIES,
    Wire,
    decode_fields,
    encode_result,
    refusal,
    unpack,
    unpack_command,
)
from palisade.metastore.compaction import Compactor
from palisade.metastore.control_commands import Control
from palisade.metastore.digest import BucketSums, StoreDigest
from palisade.metastore.errors import MetastoreError, StoreCorrupt
from palisade.metastore.history import History, is_tombstone
from palisade.metastore.housekeeping import due_commands
from palisade.metastore.lease import LeaseBook
from palisade.metastore.limits import Limits, Retention
from palisade.metastore.lineage import Lineage
from palisade.metastore.ordered_map import OrderedMap, Table
from palisade.metastore.plain_put_batch import PlainPutBatch
from palisade.metastore.put_series import is_series, result_of, singles
from palisade.metastore.range_read import count_part, read_range
from palisade.metastore.record import LINK_BYTES
from palisade.metastore.request_results import RequestResults
from palisade.metastore.requests import Command, CopyChunk, DeleteRange, Put, Range, RequestId, SystemWrite, Txn
from palisade.metastore.results import DoneResult, KeyValue, LeaseInfo, RangeResult, Result, TxnResult
from palisade.metastore.revision_writer import RevisionWriter
from palisade.metastore.staged_rows import StagedRows
from palisade.metastore.state import StampClock, StoreState
from palisade.metastore.system_records import SystemRecords
from palisade.metastore.txn import Executor
from palisade.metastore.validation import check_request, check_request_id
from palisade.metastore.watch import WatchHub

COLLECT_PER_BATCH = 16
WRITES_PER_COLLECTED = 8
"""A batch removes up to `COLLECT_PER_BATCH` blocks, and one more per `WRITES_PER_COLLECTED` writes: more than it
creates, so that the removal terminates."""


class MetaStore:
    """`raftgroup.ports.StateMachine` except for snapshots, over any OrderedMap. Not thread-safe: one loop owns it."""

    def __init__(self, tables: OrderedMap, limits: Limits | None = None, retention: Retention | None = None) -> None:
        self._tables = tables
        self.limits = limits or Limits()
        self.retention = retention or Retention()
        self._state = StoreState(tables)
        self._clock = StampClock(self._state)
        self.stamp = self._clock.stamp
        self._buckets = BucketSums(tables)
        self._history = History(tables, self._state)
        self._leases = LeaseBook(tables, self._state)
        self._compactor = Compactor(tables, self._state, self._history, self.limits)
        self._results = RequestResults(tables, self._state, self.limits)
        self.system = SystemRecords(tables, self._state)
        self._changes = EntryChanges()
        self._writer = RevisionWriter(tables, self._state, self._history, self._buckets, self._leases, self._changes)
        self._view = mvcc.StoreView(tables, self._state, self._history)
        self._executor = Executor(self._view, self._leases, self._writer, self.limits)
        self._plain_puts = PlainPutBatch(
            tables, self._state, self._buckets, self._leases, self._results, self._changes, self.limits
        )
        self.watches = WatchHub(self._history, self._state)
        self._listeners: tuple[StoreListener, ...] = ()
        self._settled = False
        tables.attach(self)
        self.feed = ChangeFeed(tables, self._state, self._history, self._buckets)
        control = Control(self._state, self._leases, self._compactor, self._results, self._writer, self.limits)
        self._handlers: dict[type, Callable[[Any], Result]] = {
            Put: self._executor.run,
            DeleteRange: self._executor.run,
            Txn: self._executor.run,
            **control.handlers(),
            SystemWrite: self._write_system,
            CopyChunk: StagedRows(self._view, self._writer, self.limits).copy,
        }

    # Called by the log

    def apply(self, index: int, term: int, stamp: Sequence[int], commands: Sequence[bytes]) -> list[Wire]:
        """One wire result per command. Any exception means that this replica cannot continue: stop the node."""
        state = self._state
        if index <= state.index:
            raise InvariantViolated(f"entry {index} is applied after entry {state.index}: each index once, in order")
        before = state.revision
        self._settled = True
        self._clock.accept(stamp)
        state.index, state.term = index, term
        results = self._run(unpacked(commands))
        if self._results.changed:
            self._results.save()
        if state.size > self.limits.quota_bytes:
            state.alarm = True
        if self._compactor.pending:
            writes = max(len(commands), state.revision - before)
            self._compactor.collect(COLLECT_PER_BATCH + writes // WRITES_PER_COLLECTED)
        state.save(self._tables)
        keys, runs = self._changes.keys, self._changes.runs
        self._changes.keys, self._changes.runs = [], []
        if keys:
            if self.watches.by_key or self.watches.by_range:
                self.watches.notify(keys, before)
            changes = AppliedEntry(before, state.revision, state.chain, keys, runs)
            for listener in self._listeners:
                listener.applied(changes)
        return results

    def skip(self, index: int, term: int) -> None:
        """An entry without commands for this machine."""
        check(index > self._state.index, f"entry {index} is skipped after entry {self._state.index}")
        self._state.index, self._state.term = index, term
        self._state.save_applied(self._tables)

    def lead(self, now: float, wall_ms: int) -> None:
        """This node stamps from now on; `now` in seconds of its monotonic clock. Independent of wall time."""
        self._clock.lead(now)

    def clock_ms(self, now: float) -> int:
        """The replicated clock that this leader would stamp now: the argument of `due_commands`."""
        return self._clock.clock_ms(now)

    def due_commands(self, clock_ms: int) -> list[Command]:
        """The commands that the leader should propose now; proposing one twice is harmless."""
        return due_commands(
            self._state, self._leases, self._compactor, self._results, self.limits, self.retention, clock_ms
        )

    def collect(self, blocks_max: int = 64) -> bool:
        """One bounded slice of physical removal, for idle moments. True while there is more to do."""
        self._compactor.collect(blocks_max)
        return self._compactor.pending

    def reload(self) -> None:
        """The tables were replaced (a snapshot): discard what is in memory, and notify every watch."""
        self._settled = True
        before = self._state.revision
        self._state.load(self._tables)
        self._history.reload()
        self._buckets.load(self._tables)
        self._leases.load()
        self._compactor.load()
        self._results.load()
        self.system.load()
        self.watches.notify_all(before)
        for listener in self._listeners:
            listener.reloaded()

    # Listeners, and calls from the tables

    def listen(self, *listeners: StoreListener) -> None:
        """Sets the listeners of this store, in the order of the calls. Once, before the store is used.

        Raises RuntimeError afterwards: a listener that misses the first entry would be silently wrong.
        """
        if self._settled:
            raise RuntimeError("listeners are set already, or the store is in use: name all listeners first")
        self._listeners, self._settled = listeners, True

    def calls(self, listener: StoreListener) -> bool:
        """Whether it is one of the listeners."""
        return listener in self._listeners

    def saving(self) -> None:
        """State that is only in memory is written to the tables."""
        self._settled = True
        self._buckets.save(self._tables)
        for listener in self._listeners:
            listener.saving()

    def flushed(self, keys: Sequence[bytes], rows: Rows) -> None:
        for listener in self._listeners:
            listener.flushed(keys, rows)

    # For readers

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
    def lineage(self) -> Lineage:
        """The cluster's id and the generation of its history: the label of every copy of the state."""
        return self._state.lineage

    @property
    def key_count(self) -> int:
        return self._state.keys

    @property
    def size_bytes(self) -> int:
        """The logical size that the quota limits; equal on all replicas."""
        return self._state.size

    @property
    def alarm(self) -> bool:
        """Whether the quota is exhausted: only commands that need no space are accepted then."""
        return self._state.alarm

    def live_pins(self, prefix: str) -> tuple[str, ...]:
        """The ids of the pins with this prefix that hold MM back."""
        return self._compactor.live_pins(prefix)

    @property
    def collecting(self) -> bool:
        """Whether physical removal lags behind MM."""
        return self._compactor.pending

    def get(self, key: bytes) -> KeyValue | None:
        """The latest version of one key, by the shortest path."""
        return mvcc.get(self._tables, key)

    def bodies(self, keys: Sequence[bytes]) -> list[tuple[int, bytes, bytes | None]]:
        """(revision of its latest change, the key, its content in the form of `vault.change`) of each; None: it does
        not exist.

        For a key whose tombstone is removed, the latest revision of the store.
        """
        rows, latest, number = self._tables.get_many(Table.KEY, keys), self._state.revision, int.from_bytes
        found: list[tuple[int, bytes, bytes | None]] = []
        for key in keys:
            row = rows.get(key)
            if row is None:
                found.append((latest, key, None))
            else:
                found.append((number(row[MOD], "big"), key, None if is_tombstone(row) else row[LINK_BYTES:]))
        return found

    def range(self, request: Range) -> RangeResult:
        """Raises Compacted, FutureRevision. The caller has called `check_request` and, if needed, a read barrier."""
        return read_range(self._view, request, self._state.revision)

    def count_part(
        self, key: bytes, range_end: bytes, revision: int, rows: int, blocks: int
    ) -> tuple[int, bytes | None]:
        """As `range_read.count_part`."""
        return count_part(self._view, key, range_end, revision, rows, blocks)

    def read_txn(self, request: Txn) -> TxnResult:
        """A transaction for which `is_read_only` holds."""
        return self._executor.read(request)

    @property
    def blocks_read(self) -> int:
        """Blocks read by reads at older revisions so far: their cost besides the rows."""
        return self._history.blocks_read

    def leases(self) -> tuple[int, ...]:
        return self._leases.ids()

    def lease_info(self, lease: int) -> LeaseInfo:
        """At the last applied stamp. Raises LeaseNotFound."""
        granted, _ = self._leases.require(lease)
        remaining, keys = self._leases.remaining_ms(lease), self._leases.keys(lease)
        return LeaseInfo(self._state.revision, lease, remaining, granted, keys)

    def digest(self) -> StoreDigest:
        return StoreDigest(self._state.revision, digest_bytes(self._state.chain), self._buckets.packed())

    def bucket_sums(self) -> list[int]:
        """The buckets of `digest`, as numbers."""
        return self._buckets.numbers()

    def chain_at(self, revision: int) -> bytes | None:
        """The chain digest after a retained revision; None for another one."""
        chain = self._history.chain_at(revision)
        return None if chain is None else digest_bytes(chain)

    # One command

    def _run(self, values: Sequence[Any]) -> list[Wire]:
        """`values`: the msgpack content of the commands, or the refusal of undecodable bytes."""
        answers: list[Wire] = []
        done = 0
        while done < len(values):
            plain = self._plain_puts.run(values, done, answers)
            if plain == done:
                value = values[done]
                answers.append(self._series(value) if is_series(value) else self._command(value))
                plain += 1
            done = plain
        return answers

    def _series(self, fields: Sequence[Any]) -> Wire:
        """Executes its puts one by one."""
        revision = self._state.revision + 1
        done = self._plain_puts.series(fields)
        if done == len(fields[2]) // 2:
            return (SERIES, revision, done)
        wires: list[Wire] = [(PUT_RESULT, revision + number) for number in range(done)]
        return result_of(wires + self._run(singles(fields, done)))

    def _command(self, value: Any) -> Wire:
        if isinstance(value, MetastoreError):
            return refusal(value)
        try:
            request, request_id = decode_fields(value)
        except StoreCorrupt:
            raise
        except MetastoreError as error:
            return refusal(error)
        return self._once(request, request_id) if request_id is not None else self._execute(request)

    def _once(self, request: Command, request_id: RequestId) -> Wire:
        """Execute it, unless its result is already stored (M3)."""
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
        return result

    def _execute(self, request: Command) -> Wire:
        """A refusal changes nothing: it is only possible before the first write."""
        try:
            check_request(request, self.limits)
            result = encode_result(self._handlers[type(request)](request))
        except StoreCorrupt:
            raise
        except MetastoreError as error:
            check(not self._writer.dirty, f"{type(request).__name__} was refused half-way: {error}")
            return refusal(error)
        if self._state.size > self.limits.quota_bytes:
            self._state.alarm = True  # the write that crosses the quota is the last one: refusals change no alarm
        return result

    def _write_system(self, request: SystemWrite) -> DoneResult:
        return DoneResult(self._state.revision, self.system.write(request))


def unpacked(commands: Sequence[bytes]) -> list[Any]:
    """The msgpack values of the commands; a refusal for each undecodable one."""
    try:
        return list(map(unpack, commands))
    except Exception:
        return [unpacked_or_refused(command) for command in commands]


def unpacked_or_refused(command: bytes) -> Any:
    try:
        return unpack_command(command)
    except MetastoreError as error:
        return error
