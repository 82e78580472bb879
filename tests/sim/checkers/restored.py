"""A backup is the complete committed state at its revision; a restored cluster begins with it (docs/operations.md).

Of a backup: every version of every key committed by then and none after it, as the world has recorded; the numbers and
leases of replicas at its place in the log; and no write acknowledged before the request is missing. Of each restored
node at its first start: the same, in a newer generation, with the full time of each lease. Clients check what of the
past can still be read, and that retries have their earlier results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgpack

from palisade.metastore.lease import LEASE_ID, read_lease_row
from palisade.metastore.lineage import LINEAGE_KEY
from palisade.metastore.ordered_map import OrderedMap, Table
from palisade.metastore.requests import Range
from palisade.metastore.state import StoreState
from palisade.metastore.state_machine import MetaStore
from palisade.metastore.system_records import PREFIX
from palisade.node.fencing.inherited_leases import record_name
from palisade.topology.records import NODE_PREFIX, NodeRecord
from tests.sim.backups import Backup, Base, content_of
from tests.sim.history import History
from tests.sim.node import Host
from tests.sim.restoring import NAME
from tests.sim.truth import Truth
from tests.sim.world import Checker, World

EVERYTHING = Range(b"\0", b"\0")


class RestoredState(Checker):
    name = NAME

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._numbers: dict[int, tuple[Any, ...]] = {}
        """The state of replicas, by index."""
        self._leases: dict[int, dict[int, int]] = {}
        self._backup: Backup | None = None
        self._generation = 0
        self._unseen: set[str] = set()

    def applied(self, host: Host, index: int, term: int, commands: Sequence[bytes]) -> None:
        if self.world.takes_backups and index not in self._numbers:
            self._numbers[index] = numbers_of(host.store._state)
            self._leases[index] = {lease: ttl for lease, (ttl, _) in host.store._leases._book.items()}

    def backed_up(self, backup: Backup) -> None:
        header, what = backup.header, f"the backup of revision {backup.revision}"
        if backup.revision < backup.floor:
            self.fail(f"{what} was asked for when {backup.floor} had been acknowledged")
        if header.generation != self.world.generation:
            self.fail(f"{what} is of generation {header.generation}, and the cluster of {self.world.generation}")
        tables = content_of(backup.data)
        state = StoreState(tables)
        known = self._numbers.get(header.index)
        if known is not None and numbers_of(state) != known:
            self.fail(f"{what} has {numbers_of(state)} at index {header.index}, replicas had {known}")
        leases = {lease: ttl for lease, (ttl, _) in leases_of(tables).items()}
        if known is not None and leases != self._leases[header.index]:
            self.fail(f"{what} has the leases {leases}, replicas had {self._leases[header.index]}")
        self._keys(what, MetaStore(tables), backup.history, backup.revision)

    def restored(self, base: Base) -> None:
        self._backup, self._generation = base.backup, base.generation
        self._unseen = {host.id for host in self.world.members}

    def wired(self, host: Host) -> None:
        if self._backup is None or host.id not in self._unseen:
            return
        self._unseen.remove(host.id)
        header, generation = self._backup.header, self._generation
        what, backup = f"{host.id}, restored from revision {header.revision},", content_of(self._backup.data)
        tables: OrderedMap = host.store._tables
        state = StoreState(tables)
        if numbers_of(state) != numbers_of(StoreState(backup)):
            self.fail(f"{what} has {numbers_of(state)}, the backup {numbers_of(StoreState(backup))}")
        if state.lineage.generation != generation or state.lineage.cluster_id != header.cluster_id:
            self.fail(f"{what} is of {state.lineage}, and was to be of generation {generation}")
        whole = {lease: (ttl, state.clock_ms + ttl) for lease, (ttl, _) in leases_of(backup).items()}
        if leases_of(tables) != whole:
            self.fail(f"{what} has the leases {leases_of(tables)}, with their whole time these are {whole}")
        added = b"system/" + record_name(generation).encode()
        for table in Table:
            expected = restored_rows(backup) if table is Table.META else rows_of(backup, table)
            if table is not Table.LEASE and rows_of(tables, table, added) != expected:
                self.fail(f"{what} has other rows of {table.name} than its backup")
        if tables.get(Table.META, added) is None:
            self.fail(f"{what} waits for no possible holder of an earlier lease")
        self._keys(what, host.store, self._backup.history, header.revision)

    def _keys(self, what: str, store: MetaStore, history: History, revision: int) -> None:
        there = {kv.key: kv for kv in store.range(EVERYTHING).kvs}
        for kv in Truth(history).range(EVERYTHING, revision):
            held = there.pop(kv.key, None)
            if held != kv:
                self.fail(f"{what} has {held}, where {kv} was committed")
        for key in there:
            self.fail(f"{what} has {there[key]}, and no such key was there")


def numbers_of(state: StoreState) -> tuple[Any, ...]:
    return state.index, state.term, state.revision, state.chain, state.keys, state.size, state.compacted


def leases_of(tables: OrderedMap) -> dict[int, tuple[int, int]]:
    """By id: (ttl in ms, deadline in ms)."""
    return {LEASE_ID.unpack(key)[0]: read_lease_row(value) for key, value in tables.scan(Table.LEASE, b"", None)}


def rows_of(tables: OrderedMap, table: Table, added: bytes = b"") -> dict[bytes, bytes]:
    """Without the lineage, which a restore replaces, and `added`."""
    gone = (LINEAGE_KEY, added) if table is Table.META else ()
    return {key: value for key, value in tables.scan(table, b"", None) if key not in gone}


def restored_rows(backup: OrderedMap) -> dict[bytes, bytes]:
    """The rows of META as a restore leaves them: without addresses of nodes, so no node of the original is reached."""
    rows, index = rows_of(backup, Table.META), StoreState(backup).index
    for key, row in rows.items():
        if key.startswith(PREFIX + NODE_PREFIX.encode()):
            node = NodeRecord.from_bytes(msgpack.unpackb(row)[1])
            if node.addresses:
                rows[key] = msgpack.packb([index, replace(node, addresses={}).to_bytes()])
    return rows
