"""Faults of backups and restores: missing rows, a wrong generation, a wrong history."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import palisade.metastore.backup
import palisade.metastore.snapshot
import palisade.node.restore_data_dir
import tests.sim.backups
from palisade.api.backups import OpenBackup, open_backup
from palisade.client.watch import Watch
from palisade.fencing.messages import UNKNOWN
from palisade.metastore.backup import BackupEnd, BackupHeader, BackupParser
from palisade.metastore.lineage import LINEAGE_KEY, Lineage, encode_lineage
from palisade.metastore.ordered_map import OrderedMap, Table
from palisade.metastore.requests import SystemWrite
from palisade.metastore.snapshot import Row, StoreSnapshotReader
from palisade.metastore.state import StoreState
from palisade.node.fencing.lease_client import LeaseClient
from palisade.node.fencing.lease_server import LeaseServer
from palisade.recovery import feed_messages as wire
from palisade.recovery.ports import SourceState
from palisade.recovery.remote_source import RemoteSource
from palisade.service.feed_service import FeedAnswers
from tests.sim.faults import Fault, Kind
from tests.sim.plants.plant import MANY, Patch, Stage, caught_by, with_faults

RESTORED = with_faults(Fault(6.0, Kind.BACKUP, "n2", "n1"), Fault(9.0, Kind.RESTORE, "n1", "n2", 0.5), seed=2)
OF_A_LAGGING_NODE = with_faults(Fault(4.0, Kind.ISOLATE, "n2", "n1", 5.0), Fault(8.0, Kind.BACKUP, "n2", "n1"))
RUNS_ON = with_faults(Fault(8.5, Kind.BACKUP, "n2", "n1"), Fault(9.0, Kind.RESTORE, "n1", "n2", 0.5), seed=35)
"""The follower keeps running, and little is lost: the restored cluster soon reaches the revision of its vault."""
AT_ONCE = with_faults(Fault(6.0, Kind.BACKUP, "n2", "n1"), Fault(9.0, Kind.RESTORE, "n1", "n2"), seed=35)
"""It keeps running, and its lease does, until there is a leader again."""
NEW_AT_ONCE = replace(AT_ONCE, seed=32, plan=(*(AT_ONCE.plan or ()), Fault(7.0, Kind.WIPE, "f1", "n1", 0.5)))
"""It has just started with an empty vault."""


def left_out(patch: Patch, table: Table, last: int | None) -> None:
    """Of a backup: the rows of this table from `last` on are missing."""
    begin = OpenBackup.__init__

    def begun(self: OpenBackup, reader: StoreSnapshotReader, *rest: Any) -> None:
        rows_from = reader._rows_from

        def fewer(of: Table, start: bytes) -> Iterator[Row]:
            rows = list(rows_from(of, start))
            return iter(rows[:last] if of is table else rows)

        reader._rows_from = fewer
        begin(self, reader, *rest)

    patch.setattr(OpenBackup, "__init__", begun)


@caught_by("restored state", on=RESTORED)
def backups_without_their_last_key(patch: Patch) -> None:
    left_out(patch, Table.KEY, -1)


@caught_by("restored state", on=RESTORED)
def backups_without_their_leases(patch: Patch) -> None:
    left_out(patch, Table.LEASE, 0)


@caught_by("restored state", on=RESTORED)
def backups_without_the_results_of_retries(patch: Patch) -> None:
    """A write that is repeated after the restore is executed a second time (M3)."""
    left_out(patch, Table.CLIENT, 0)


@caught_by("restored state", on=OF_A_LAGGING_NODE)
def backups_without_a_read_barrier(patch: Patch) -> None:
    """Without a read barrier."""
    patch.setattr(
        tests.sim.backups,
        "open_backup",
        lambda service, cluster, now_ms: open_backup(service, cluster, now_ms, serializable=True),
    )


@caught_by("restored state", on=Stage("restores", 4))
def damaged_backups_that_are_accepted(patch: Patch) -> None:
    """No checksum, chain or hash is checked."""
    blind = SimpleNamespace(crc32=lambda *_: 0)
    patch.setattr(palisade.metastore.backup, "zlib", blind)
    patch.setattr(palisade.metastore.snapshot, "zlib", blind)
    patch.setattr(palisade.metastore.snapshot, "next_chain", lambda chain, piece: chain)
    patch.setattr(BackupParser, "_read_end", lambda self, _: BackupEnd(self._pieces, self._at, bytes(32)))


@caught_by("restored state", "recovery decision", on=RESTORED)
def restores_that_keep_the_generation(patch: Patch) -> None:
    """Thus a node with a vault of changes after the backup does not detect that they are lost (R7)."""

    def same(header: BackupHeader, wanted: int | None = None) -> int:
        return header.generation

    def begin(tables: OrderedMap, generation: int) -> Lineage:
        lineage = Lineage(StoreState(tables).lineage.cluster_id, generation)
        tables.put(Table.META, LINEAGE_KEY, encode_lineage(lineage))
        return lineage

    patch.setattr("tests.sim.restoring.generation_after", same)
    patch.setattr(palisade.node.restore_data_dir, "begin_restored", begin)


@caught_by("restored state", on=RESTORED)
def leases_that_keep_their_deadlines(patch: Patch) -> None:
    begin = palisade.node.restore_data_dir.begin_restored  # type: ignore[attr-defined]

    def begun(tables: OrderedMap, generation: int) -> Lineage:
        leases = list(tables.scan(Table.LEASE, b"", None))
        lineage: Lineage = begin(tables, generation)
        for lease, packed in leases:
            tables.put(Table.LEASE, lease, packed)
        return lineage

    patch.setattr(palisade.node.restore_data_dir, "begin_restored", begun)


@caught_by("restored state", on=RESTORED)
def restores_that_wait_for_no_earlier_lease(patch: Patch) -> None:
    """The first leader knows the holders of the backup only (F3)."""
    nobody = SystemWrite((), (("nobody", b""),))
    patch.setattr(palisade.node.restore_data_dir, "waiting_for_former", lambda records, generation: nobody)


@caught_by("stays up", on=RUNS_ON)
def revisions_of_any_history(patch: Patch) -> None:
    """A follower that keeps running gets the restored cluster's changes at the revisions that it requests (R7)."""

    def asked(self: FeedAnswers, body: bytes, *reads: wire.Read) -> list[Any]:
        return wire.arguments(body, *reads, wire.or_none(wire.history))[:-1]

    patch.setattr(FeedAnswers, "_asked", asked)


@caught_by("watch contract", on=RESTORED)
def watches_that_continue_in_any_history(patch: Patch) -> None:
    """The client resumes at its revision, whatever that is now (M4)."""
    patch.setattr(Watch, "_ends_with_its_history", lambda self, its: False)


@caught_by("watch contract", on=replace(MANY, seed=3))
def watches_that_end_at_each_reconnection(patch: Patch) -> None:
    """As if every other member were of another history: safe, and no watch outlives its connection (M4)."""
    judged = Watch._ends_with_its_history

    def ends(self: Watch, its: Any) -> bool:
        return judged(self, [*its[:1], its[1] + 1] if its is not None and self._history is not None else its)

    patch.setattr(Watch, "_ends_with_its_history", ends)


@caught_by("lease safety", on=replace(AT_ONCE, seed=39))
def leases_for_any_history(patch: Patch) -> None:
    """And gets leases from the restored cluster, until it detects the restore by itself (F1, R7)."""
    revisions_of_any_history(patch)
    patch.setattr(LeaseServer, "_is_of_another_history", lambda self, connection, its: False)


@caught_by("LV monotonic", on=NEW_AT_ONCE)
def releases_of_any_history(patch: Patch) -> None:
    """A node whose vault belongs to no history yet gets RR of the lost history, since its feed is slow, and keeps it in
    the next one (F3, R7)."""
    refuses, state = LeaseServer._is_of_another_history, RemoteSource.state

    async def slow_state(self: RemoteSource, chain_at: int) -> SourceState:
        await asyncio.sleep(4.0)
        return await state(self, chain_at)

    patch.setattr(LeaseClient, "has_history", True)
    patch.setattr(
        LeaseServer, "_is_of_another_history", lambda self, at, its: its != UNKNOWN and refuses(self, at, its)
    )
    patch.setattr(RemoteSource, "state", slow_state)
