"""Faults that are planted in production code, each to prove that the checker that it is for sees it (issue 5).

Each takes away or bends one rule. `scripts/sim --plant NAME` has to be red; `seen_by` are the checkers that may be the
first to say so. A fault that nobody sees means that the simulator looks at too little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

import metastore.stored_record
import raftgroup.journal_format
import raftgroup.replica
import recovery.recover
import vault.seal
from fencing.registry import Registry
from fencing.release import Releases
from metastore.exactly_once import ResultBook
from metastore.machine import MetaStore
from metastore.results import RevisionEvents
from metastore.watch import Watcher
from node.fencing.grantor import Grantor
from node.fencing.holder import VaultHolder
from node.fencing.released import Released
from node.fencing.strict_answers import StrictAnswers
from node.service import Service
from node.watching import Watching
from raftgroup.guard import Append, Extend, Matched, Missing, StaleTerm
from raftgroup.journal import MemoryJournal
from raftgroup.outbox import Outbox
from raftgroup.ports import Entry
from recovery.decide import Case, Join
from tests.sim.disk import SimVaultHome

Patch = pytest.MonkeyPatch
RAFT = ("leader completeness", "log matching", "state machine safety", "state machine equality", "durable")
READS = ("fenced reads", "linearizable")


@dataclass(frozen=True, slots=True)
class Plant:
    """`scenario`: in which it does harm soon."""

    name: str
    plant: Callable[[Patch], None]
    seen_by: tuple[str, ...]
    scenario: str = "many"


PLANTS: dict[str, Plant] = {}


def seen_by(*checkers: str, scenario: str = "many") -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def kept(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
        name = plant.__name__.replace("_", "-")
        PLANTS[name] = Plant(name, plant, checkers, scenario)
        return plant

    return kept


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Nothing is planted for None."""
    with Patch.context() as patch:
        if name is not None:
            PLANTS[name].plant(patch)
        yield


# The group


@seen_by("words on disk")
def words_before_they_are_on_disk(patch: Patch) -> None:
    def at_once(self: Outbox, member: str, kind: int, body: Any) -> bool:
        self._send(member, kind, body)
        return True

    patch.setattr(Outbox, "send_durable", at_once)


@seen_by("words on disk")
def votes_that_are_not_written_down(patch: Patch) -> None:
    set_term = MemoryJournal.set_term
    patch.setattr(MemoryJournal, "set_term", lambda self, term, vote: set_term(self, term, None))


@seen_by(*RAFT, "liveness", scenario="network")
def appends_without_the_guard(patch: Patch) -> None:
    """As the library does it: whatever follows prev_index is replaced (pysyncobj.md, fault 1)."""

    def unguarded(message: Append, log: Any, term: int, _commit: int) -> StaleTerm | Missing | Matched | Extend:
        if message.term < term:
            return StaleTerm()
        if message.prev_index > log.last.index or log.term_at(message.prev_index) != message.prev_term:
            return Missing(min(log.last.index, message.prev_index) + 1)
        return Extend(message, truncates=True) if message.entries else Matched(message.covers, message.commit)

    patch.setattr(raftgroup.replica, "screen_append", unguarded)


@seen_by(*RAFT, "vaults", "stays up", "recovery decision", "never back", scenario="disks")
def a_disk_that_lies(patch: Patch) -> None:
    """What was synced last is gone after a crash."""
    crash = MemoryJournal.crash

    def lying(self: MemoryJournal) -> None:
        crash(self)
        kept = self._disk.entries[:-3] if len(self._disk.entries) > 4 else self._disk.entries
        self._disk = replace(self._disk, entries=kept)
        crash(self)

    patch.setattr(MemoryJournal, "crash", lying)


@seen_by(*RAFT, *READS, "vaults", "stays up", "snapshots", "recovery decision", "never back", scenario="disks")
def damage_that_is_let_through(patch: Patch) -> None:
    """Checksums of journal, store and vault are not looked at: what is damaged on disk is what a node starts with."""

    def entry(index: int, value: bytes) -> Entry:
        return Entry(value[12:], index, int.from_bytes(value[4:12], "big"))

    patch.setattr(raftgroup.journal_format, "entry_from", entry)
    patch.setattr(metastore.stored_record, "unseal", lambda table, key, sealed: sealed[:-8])
    patch.setattr(vault.seal, "unseal", lambda table, key, sealed: sealed[:-8])


@seen_by("state machine equality")
def a_replica_that_counts_otherwise(patch: Patch) -> None:
    apply, replicas = MetaStore.apply, list[MetaStore]()

    def applied(self: MetaStore, index: int, term: int, stamp: Any, commands: Sequence[bytes]) -> Any:
        if self not in replicas:
            replicas.append(self)
        results = apply(self, index, term, stamp, commands)
        self._state.size += replicas.index(self) == 1 and index == 40
        return results

    patch.setattr(MetaStore, "apply", applied)


@seen_by("liveness")
def nodes_that_come_back_once_only(patch: Patch) -> None:
    begin = VaultHolder.begin_recovery
    wants = VaultHolder.wants_recovery

    def begun(self: Any) -> Any:
        self.begun = getattr(self, "begun", 0) + 1
        return begin(self)

    patch.setattr(VaultHolder, "begin_recovery", begun)
    patch.setattr(VaultHolder, "wants_recovery", lambda self: getattr(self, "begun", 0) < 2 and wants(self))


# Reads and writes


@seen_by(*READS)
def reads_without_a_barrier(patch: Patch) -> None:
    _asked(patch, lambda request: replace(request, serializable=True))


@seen_by("exactly once")
def retries_that_are_not_known(patch: Patch) -> None:
    patch.setattr(ResultBook, "find", lambda self, request: None)
    patch.setattr(ResultBook, "active", lambda self, name: None)


@seen_by("snapshots")
def ranges_without_their_last_row(patch: Patch) -> None:
    read = Service.range

    async def short(self: Service, request: Any, **more: Any) -> Any:
        result = await read(self, request, **more)
        return replace(result, kvs=result.kvs[:-1]) if len(result.kvs) > 3 else result

    patch.setattr(Service, "range", short)


@seen_by("snapshots")
def reads_of_another_past(patch: Patch) -> None:
    _asked(patch, lambda request: replace(request, revision=request.revision and request.revision + 1))


def _asked(patch: Patch, changed: Callable[[Any], Any]) -> None:
    """What clients ask a node to read is something else."""
    read = Service.range

    async def asked(self: Service, request: Any, **more: Any) -> Any:
        return await read(self, changed(request), **more)

    patch.setattr(Service, "range", asked)


# Watches


def _polled(patch: Patch, told: Callable[[tuple[RevisionEvents, ...]], tuple[RevisionEvents, ...]]) -> None:
    """Of what a node's watches tell."""
    poll = Watching.poll
    patch.setattr(Watching, "poll", lambda self: told(poll(self)))


@seen_by("watch contract")
def watches_with_gaps(patch: Patch) -> None:
    _polled(patch, lambda found: found[1:] if len(found) > 1 else found)


@seen_by("watch contract")
def watches_with_repetitions(patch: Patch) -> None:
    _polled(patch, lambda found: (*found, *found[-1:]))


@seen_by("watch contract")
def watches_that_split_revisions(patch: Patch) -> None:
    _polled(patch, lambda found: tuple(RevisionEvents(each.revision, (e,)) for each in found for e in each.events))


@seen_by("watch contract")
def progress_ahead_of_events(patch: Patch) -> None:
    patch.setattr(Watcher, "progress", property(lambda self: self._hub.revision + 2))


# Fencing


@seen_by(*READS, "lease safety", "procedures")
def strict_writes_answered_at_commit(patch: Patch) -> None:
    patch.setattr(Released, "reached", lambda self, revision: True)


@seen_by(*READS, "lease safety", "stays up")
def pages_that_stay_active(patch: Patch) -> None:
    patch.setattr(VaultHolder, "_refuse", lambda self, why, state=None: None)


@seen_by(*READS, "lease safety")
def releases_without_a_verdict(patch: Patch) -> None:
    patch.setattr(Registry, "safe_up_to", lambda self, now, latest: latest)
    patch.setattr(Registry, "blocks", lambda self, revision, now, latest: False)


@seen_by(*READS, "lease safety")
def grants_without_the_quorum_lease(patch: Patch) -> None:
    grant_all = Grantor._grant_all

    def granted(self: Grantor, now: float) -> None:
        self._lease_holds = lambda: True
        grant_all(self, now)

    patch.setattr(Grantor, "_grant_all", granted)
    patch.setattr(Grantor, "end_term", lambda self: None)


@seen_by(*READS)
def reads_of_what_is_not_released(patch: Patch) -> None:
    patch.setattr(StrictAnswers, "is_pending", lambda self, request: False)


@seen_by("liveness")
def releases_that_never_come(patch: Patch) -> None:
    advance = Releases.advance

    def stuck(self: Releases, now: float) -> int | None:
        return None if self.rr is not None and self.lm > 20 else advance(self, now)

    patch.setattr(Releases, "advance", stuck)


# Vaults and recovery


@seen_by("never back")
def vaults_that_forget_when_their_process_dies(patch: Patch) -> None:
    opened = SimVaultHome.open

    async def older(self: SimVaultHome) -> Any:
        self._disk.backend.lose_power()
        return await opened(self)

    patch.setattr(SimVaultHome, "open", older)


@seen_by("recovery decision")
def joins_of_vaults_that_lag(patch: Patch) -> None:
    decide = recovery.recover.decide  # type: ignore[attr-defined]

    def sure(vault: Any, cluster: Any, options: Any) -> Any:
        decision = decide(vault, cluster, options)
        return Join(Case.A) if 0 < cluster.latest - vault.revision < 5 else decision

    patch.setattr(recovery.recover, "decide", sure)
