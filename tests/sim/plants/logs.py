"""Faults of logs and of applied entries: what is appended, what counts as committed, what a replica makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import palisade.raftgroup.lmdb_journal
import palisade.raftgroup.replica
from palisade.base.checksums import RowChecksums
from palisade.metastore.compaction import Compactor
from palisade.metastore.lease import lease_row, read_lease_row
from palisade.metastore.ordered_map import Table
from palisade.metastore.request_results import RESULT
from palisade.metastore.snapshot import Row, StoreSnapshotReader
from palisade.metastore.state_machine import MetaStore
from palisade.node.config import RetentionConfig
from palisade.raftgroup.errors import NodeFailed
from palisade.raftgroup.journal import LogChanges
from palisade.raftgroup.library import Engine
from palisade.raftgroup.memory_journal import MemoryJournal, MemoryStorage
from palisade.raftgroup.message_screen import Append, Extend, Matched, Missing, StaleTerm, screen_append
from palisade.raftgroup.ports import Entry
from tests.sim.disk import Disk, SimStore
from tests.sim.faults import Fault, Kind
from tests.sim.plants.plant import LEADERS_CUT_OFF, STORMS, Patch, Stage, caught_by, with_faults
from tests.sim.world import Settings

SHORT_LOG = RetentionConfig(log_entries=20)
"""A node that returns with an empty disk gets a snapshot."""
Screened = StaleTerm | Missing | Matched | Extend


@caught_by("durable", "state machine safety", "leader completeness", on=LEADERS_CUT_OFF)
def commits_without_a_majority(patch: Patch) -> None:
    """The leader's own disk suffices."""
    tick = Engine.tick

    def ticked(self: Engine) -> None:
        if self.leads:
            self.commit_to(self._journal.synced_index)
        tick(self)

    patch.setattr(Engine, "tick", ticked)


@caught_by("leader completeness", on=replace(STORMS, seed=15))
def appends_without_the_guard(patch: Patch) -> None:
    """As the library does it: whatever follows prev_index is replaced (pysyncobj.md, fault 1)."""

    def unguarded(message: Append, log: Any, term: int, _commit: int) -> Screened:
        if message.term < term:
            return StaleTerm()
        if message.prev_index > log.last.index or log.term_at(message.prev_index) != message.prev_term:
            return Missing(min(log.last.index, message.prev_index) + 1)
        return Extend(message, truncates=True) if message.entries else Matched(message.covers, message.commit)

    patch.setattr(palisade.raftgroup.replica, "screen_append", unguarded)


@caught_by("log matching", on=LEADERS_CUT_OFF)
def conflicts_that_stay_in_the_log(patch: Patch) -> None:
    """Entries are appended after the existing ones, whatever those are (Raft 5.3)."""

    def behind(message: Append, log: Any, term: int, _commit: int) -> Screened:
        if message.term < term:
            return StaleTerm()
        last = log.last
        if message.prev_index > last.index:
            return Missing(last.index + 1)
        entries = [entry for entry in message.entries if entry.index > last.index]
        if not entries:
            return Matched(message.covers, min(message.commit, message.covers))
        return Extend(replace(message, prev_index=last.index, prev_term=last.term, entries=entries), truncates=False)

    patch.setattr(palisade.raftgroup.replica, "screen_append", behind)


@caught_by("stays up", on=STORMS)
def repetitions_taken_for_another_history(patch: Patch) -> None:
    def strict(message: Append, log: Any, term: int, commit: int) -> Screened:
        if message.term >= term and message.entries and message.entries[0].index <= commit:
            raise NodeFailed("the leader sends what is committed already")
        return screen_append(message, log, term, commit)

    patch.setattr(palisade.raftgroup.replica, "screen_append", strict)


@caught_by("stays up", on=Stage("disks", 4))
def full_disks_that_are_not_reported(patch: Patch) -> None:
    """A journal that cannot be written ends the node by another error than the documented one."""
    write = MemoryStorage.write

    def surprised(self: MemoryStorage, changes: LogChanges, ended: Callable[[Exception | None], None]) -> None:
        write(self, changes, lambda failure: ended(failure and ZeroDivisionError()))

    patch.setattr(MemoryStorage, "write", surprised)


@caught_by(
    "durable",
    on=with_faults(Fault(8.0, Kind.POWER, "all", for_s=0.5), Fault(14.0, Kind.POWER, "all", for_s=0.5), seed=6),
)
def disks_that_lie(patch: Patch) -> None:
    """The last synced data are gone after a crash."""
    crash = MemoryJournal.crash

    def lying(self: MemoryJournal) -> None:
        crash(self)
        stored = self.disk.stored
        kept = stored.entries[:-12] if len(stored.entries) > 12 else stored.entries
        self.disk.stored = replace(stored, entries=kept)
        crash(self)

    patch.setattr(MemoryJournal, "crash", lying)


@caught_by(
    "log matching",
    on=with_faults(
        *(Fault(3.0 + 3.0 * number, Kind.DAMAGE, ("n2", "n3", "n1")[number % 3], "n1", 0.3) for number in range(5))
    ),
)
def damage_that_is_not_detected(patch: Patch) -> None:
    """Checksums of journal, store and vault are not checked: a node starts with damaged data."""

    def entry(index: int, value: bytes) -> Entry:
        return Entry(value[12:], index, int.from_bytes(value[4:12], "big"))

    patch.setattr(palisade.raftgroup.lmdb_journal, "entry_from", entry)
    patch.setattr(RowChecksums, "unseal", lambda self, table, key, sealed: sealed[:-8])


@caught_by("state machine equality")
def replicas_that_count_otherwise(patch: Patch) -> None:
    apply, replicas = MetaStore.apply, list[MetaStore]()

    def applied(self: MetaStore, index: int, term: int, stamp: Any, commands: Sequence[bytes]) -> Any:
        if self not in replicas:
            replicas.append(self)
        results = apply(self, index, term, stamp, commands)
        self._state.size += replicas.index(self) == 1 and index == 40
        return results

    patch.setattr(MetaStore, "apply", applied)


@caught_by("state machine equality")
def replicas_that_skip_an_entry(patch: Patch) -> None:
    apply = MetaStore.apply

    def forgets(self: MetaStore, index: int, term: int, stamp: Any, commands: Sequence[bytes]) -> Any:
        if index == 60 and self._tables._name == "n2":  # type: ignore[attr-defined]
            return apply(self, index, term, stamp, []) + [b""] * len(commands)
        return apply(self, index, term, stamp, commands)

    patch.setattr(MetaStore, "apply", forgets)


LATE_WIPE = Stage("calm", 3, (Fault(9.0, Kind.WIPE, "n2", "n1", 0.5),), Settings(retention=SHORT_LOG))


@caught_by("state machine equality", on=LATE_WIPE)
def snapshots_without_the_results_of_retries(patch: Patch) -> None:
    """A member that returns with an empty disk and leads later executes repeated requests a second time (M3)."""
    _snapshots_of(patch, lambda table, row: None if table is Table.CLIENT and row[1][:1] == RESULT else row)


@caught_by("state machine equality", on=replace(LATE_WIPE, seed=8))
def snapshots_in_which_leases_are_longer(patch: Patch) -> None:
    """A leader with this state deletes keys too late (M5)."""

    def longer(table: Table, row: Row) -> Row:
        if table is not Table.LEASE:
            return row
        stored, key, value = row
        ttl_ms, deadline_ms = read_lease_row(value)
        return stored, key, lease_row(ttl_ms, deadline_ms + 100)

    _snapshots_of(patch, longer)


def _snapshots_of(patch: Patch, shown: Callable[[Table, Row], Row | None]) -> None:
    """Rows as they are sent; None: omitted."""
    begin = StoreSnapshotReader.__init__

    def begun(
        self: StoreSnapshotReader, meta: Any, rows_from: Callable[[Table, bytes], Iterator[Row]], *rest: Any
    ) -> None:
        def sent(table: Table, start: bytes) -> Iterator[Row]:
            return (row for each in rows_from(table, start) if (row := shown(table, each)) is not None)

        begin(self, meta, sent, *rest)

    patch.setattr(StoreSnapshotReader, "__init__", begun)


@caught_by(
    "MM monotonic",
    on=with_faults(
        Fault(5.0, Kind.SLOW_DISK, "n2", "n1", 12.0, 0.9),
        *(
            fault
            for at in (7.0, 10.0, 13.0)
            for fault in (Fault(at, Kind.COMPACT, "n1"), Fault(at + 0.1, Kind.COMPACT, "n2"))
        ),
    ),
)
def compactions_to_an_older_revision(patch: Patch) -> None:
    """The requested revision becomes MM, even if MM is beyond that (M6)."""
    compact = Compactor.compact

    def compacted(self: Compactor, revision: int) -> None:
        if revision < self._state.compacted:
            self._advance(revision)
        else:
            compact(self, revision)

    patch.setattr(Compactor, "compact", compacted)


@caught_by("MM monotonic", on=with_faults(*(Fault(at, Kind.CRASH, "n2", "n1", 0.5) for at in (12.0, 16.0, 20.0))))
def stores_that_lose_their_last_flush(patch: Patch) -> None:
    """As long as the log goes back that far, nothing else reveals it."""
    keep, killed, before = SimStore._keep, Disk.killed, dict[Disk, Any]()

    def kept(self: SimStore, content: Any) -> None:
        before[self.home] = self.home.stored
        keep(self, content)

    def loses(self: Disk, *, power: bool) -> None:
        killed(self, power=power)
        self.stored = before.get(self, self.stored)

    patch.setattr(SimStore, "_keep", kept)
    patch.setattr(Disk, "killed", loses)


@caught_by(
    "state machine equality",
    on=Stage(
        "members",
        6,
        tuple(Fault(at, Kind.LEFT_BEHIND, name, "n1", 4.5, 0.4) for at, name in ((1.0, "n2"), (8.0, "n3"))),
        Settings(followers=0, retention=RetentionConfig(revisions=15, log_entries=10)),
    ),
)
def snapshots_whose_pins_are_not_loaded(patch: Patch) -> None:
    """MM of the member differs after the next compaction (issue 16)."""
    reload = MetaStore.reload

    def reloaded(self: MetaStore) -> None:
        with Patch.context() as meanwhile:
            meanwhile.setattr(Compactor, "load", lambda _: None)
            reload(self)

    patch.setattr(MetaStore, "reload", reloaded)
