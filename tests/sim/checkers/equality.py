"""All replicas have the same state at the same index of the log, and all the same rows at the end (M3, M5, M7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from palisade.metastore.digest import SUMS_KEY
from palisade.metastore.history import is_tombstone, mod_of
from palisade.metastore.ordered_map import Table
from palisade.metastore.record import POINTER
from palisade.metastore.state_machine import MetaStore
from tests.sim.node import Host
from tests.sim.world import Checker, World

Row = tuple[Table, bytes]
"""Table and key."""


class Equality(Checker):
    name = "state machine equality"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.known: dict[int, tuple[Any, ...]] = {}

    def applied(self, host: Host, index: int, term: int, commands: Sequence[bytes]) -> None:
        ours = numbers_of(host.store)
        if self.known.setdefault(index, ours) != ours:
            self.fail(f"{host.id} is at {ours} behind entry {index}, another node was at {self.known[index]}")

    def settled(self) -> None:
        """Whole digests, with every bucket, and the vaults'; then the rows themselves."""
        digests = {host.id: host.store.digest() for host in self.world.members}
        first = next(iter(digests.values()))
        for name, digest in digests.items():
            if digest != first:
                self.fail(f"{name} has another digest than the others at revision {digest.revision}")
        for host in self.world.hosts.values():
            vault = host.vault
            if vault is not None and vault.revision == first.revision and vault.packed_sums() != first.buckets:
                self.fail(f"the vault of {host.id} has other digests than the stores at revision {first.revision}")
        self._compare_rows()

    def _compare_rows(self) -> None:
        first, *others = self.world.members
        expected = rows_of(first.store)
        for host in others:
            rows = rows_of(host.store)
            if rows == expected:
                continue
            table, key = min(row for row in {*rows, *expected} if rows.get(row) != expected.get(row))
            self.fail(
                f"{host.id} has {rows.get((table, key))!r} as {key!r} of {table.name} behind entry "
                f"{host.store.applied[0]}, and {first.id} has {expected.get((table, key))!r}"
            )


def numbers_of(store: MetaStore) -> tuple[Any, ...]:
    """Revision, chain digest, keys, size, MM, clock; leases, number of clients with results, and the newest system
    record: cheap to compare after each entry."""
    state = store._state
    return (
        state.revision, state.chain, state.keys, state.size, state.minimal_revision, state.clock_ms,
        dict(store._leases._book), len(store._results), store.system.version,
    )  # fmt: skip


def rows_of(store: MetaStore) -> dict[Row, bytes]:
    """All rows that follow from the log. Not the sums of buckets, which are written when the store is flushed (`digest`
    has them), nor rows below MM: each replica removes those at its own pace (M6)."""
    mm = store._state.compacted
    return {
        (table, key): value
        for table in Table
        for key, value in store._tables.scan(table, b"", None)
        if (table, key) != (Table.META, SUMS_KEY) and not _may_be_gone(table, key, value, mm)
    }


def _may_be_gone(table: Table, key: bytes, value: bytes, mm: int) -> bool:
    """Blocks and tombstones from before MM."""
    if table is Table.REVISION:
        last: int = POINTER.unpack(key)[0]
        return last < mm
    return table is Table.KEY and mod_of(value) < mm and is_tombstone(value)
