"""The disk of a simulated machine, and what of it survives which kind of death.

If killed, the process loses its memory: of the journal everything without a completed sync, of the store everything
that was not flushed, of a snapshot everything that was not committed (`incoming.py`); data on their way to the disk at
that moment are there or not. The vault and the fence page are pages of the system and stay. Without power the vault has
lost what `vault_backend.py` determines, since the system writes it out gradually, and the page is of another boot. A
wiped disk is a new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from palisade.base.snapshots import SnapshotMeta
from palisade.metastore.flush_policy import FlushPolicy
from palisade.metastore.memory_store import Content, MemoryStore
from palisade.metastore.ordered_map import Table
from palisade.metastore.store_errors import StoreFailed
from palisade.raftgroup.memory_journal import MemoryJournal
from palisade.recovery.decision import RefusalReason
from palisade.vault.fence_page import FENCE_BYTES
from palisade.vault.position import VaultLineage, unpack_lineage
from palisade.vault.tables import VaultTable as VaultTable
from palisade.vault.vault import LINEAGE
from tests.sim.incoming import Received, SimSnapshotWriter
from tests.sim.local_data import Shelf
from tests.sim.segment_disk import SegmentDisk
from tests.sim.vault_backend import SimBackend
from tests.sim.vault_disk import Page, VaultDisk
from tests.support.simulation import Simulation

FLUSH_LOOK_S = 0.4


class Disk(VaultDisk):
    """`journal_s`: how much longer a sync of the journal takes than another one. `count`: called with what has happened
    to the vault. `shelf`: the data beside the vault."""

    def __init__(
        self,
        simulation: Simulation,
        name: str,
        number: int = 1,
        boots: int = 1,
        count: Callable[[str], None] = lambda what: None,
    ) -> None:
        super().__init__(simulation, count)
        self.name, self.number = name, number
        self.journal_s = 0.0
        self.journal = MemoryJournal(self.sync_journal)
        self.stored: Content = [{} for _ in Table]
        self.flushes = 0
        self.flushing: Content | None = None
        self.received: Received | None = None
        self.receiving: Received | None = None
        self.replacing: Content | None = None
        self.on_replaced: Callable[[], None] = lambda: None
        """Called when a snapshot has become the store, before anything else."""
        self.segments = SegmentDisk(self, simulation.random)
        self.damage: Any = None
        """A `tests.sim.damage.Damage` that was not read yet."""
        self._new_vault()
        self.boots, self.vaults = boots, 1
        self._named()

    def _named(self) -> None:
        """`boot`: number of the boot of the machine. `vault_id`: the fence page, by boot."""
        self.boot = f"{self.name[:3]:3}{self.boots:5}".encode()
        self.vault_id = f"{self.name}-{self.number}-{self.vaults}-{self.boots}"

    async def sync_journal(self) -> None:
        """Raises OSError."""
        await asyncio.sleep(self.sync_s() + self.journal_s)
        self.check()

    async def sync_names(self) -> None:
        """Of files that are renamed: a full disk has room for that."""
        await asyncio.sleep(self.sync_s())

    def _new_vault(self) -> None:
        self.foreign: RefusalReason | None = None
        """The vault is not the node's own, or of another history, and must be refused for that reason."""
        self.wrong_chain = b""
        """A wrong digest that was put into the vault. If it cannot be detected it stays there until a snapshot replaces
        it."""
        self.shelf = Shelf()
        self.backend, self.page = SimBackend(), Page(FENCE_BYTES)
        self.backend.disk = self.page.disk = self

    def read(self, part: str) -> None:
        """A start reads this part of the disk. Raises the product's error for damage."""
        if self.damage is not None and self.damage.part.value == part:
            self.damage.read()
            self.damage = None

    def put_vault_aside(self) -> None:
        """The administrator finds the vault damaged, and removes it."""
        self._new_vault()
        if self.damage is not None and self.damage.part.value == "vault":
            self.damage = None
        self.vaults += 1
        self._named()

    @property
    def vault_lineage(self) -> VaultLineage | None:
        """The lineage of its vault; None if it has none."""
        return unpack_lineage(self.backend.get(VaultTable.META, LINEAGE))

    def take_vault(self, other: Disk) -> None:
        """Put the vault of another disk into this one."""
        self.backend, self.page = other.backend, other.page
        self.backend.disk = self.page.disk = self

    def killed(self, *, power: bool) -> None:
        if not self.full and not self.failing:
            self._land()
        self._land_snapshot()
        self.flushing = self.receiving = self.replacing = None
        self.journal.crash()
        if power:
            self.lose_power()

    def lose_power(self) -> None:
        """Of unsynced data. Nothing runs."""
        self.segments.lose_power()
        self.shelf.held.clear()
        loss = self.backend.without_power(self.chance)
        if loss is not None:
            self.report(loss)
        self.foreign = self.foreign if self.vault_lineage is not None else None
        self.boots += 1
        self._named()

    def _land(self) -> None:
        """Data that were being synced when the process died may be there, or not: no sync has returned for them."""
        if self.journal.is_syncing and self.chance.random() < 0.5:
            self.journal.land()
        if self.flushing is not None and self.chance.random() < 0.5:
            self.stored = self.flushing
            self.flushes += 1

    def _land_snapshot(self) -> None:
        if self.receiving is not None and not self.full and not self.failing and self.chance.random() < 0.5:
            self.received = self.receiving
        if self.replacing is not None and self.chance.random() < 0.5:
            self.replace(self.replacing)

    def replace(self, content: Content) -> None:
        """A snapshot that was marked complete is the store."""
        self.stored, self.received = content, None
        self.flushes += 1


class SimStore(MemoryStore):
    """The store of one start of a node, with the interface of `LmdbStore`: written behind, flushed by the real
    policy."""

    def __init__(self, disk: Disk, policy: FlushPolicy | None = None) -> None:
        super().__init__(disk.name)
        self.home = disk
        self._disk, self._flushes = disk.stored, disk.flushes
        self.replace_content(self._disk)
        self._policy = policy or FlushPolicy()
        self._dirty: set[bytes] = set()
        self._writes = self._flushed = 0
        self._since: float | None = None
        self._writer: SimSnapshotWriter | None = None
        self._one = asyncio.Lock()

    def put(self, table: Table, key: bytes, value: bytes) -> None:
        super().put(table, key, value)
        self._writes += 1
        if table == Table.KEY:
            self._dirty.add(key)

    def put_many(self, table: Table, items: Mapping[bytes, bytes]) -> None:
        super().put_many(table, items)
        self._writes += 1
        if table == Table.KEY:
            self._dirty.update(items)

    def delete(self, table: Table, key: bytes) -> None:
        super().delete(table, key)
        self._writes += 1
        if table == Table.KEY:
            self._dirty.add(key)

    async def run(self, clock: Callable[[], float]) -> None:
        """Flush when due, forever. Raises StoreFailed."""
        while True:
            await asyncio.sleep(FLUSH_LOOK_S)
            waiting = self._writes - self._flushed
            self._since = None if not waiting else self._since if self._since is not None else clock()
            if self._since is not None and self._policy.is_due(waiting, 0, clock() - self._since):
                await self.flush()

    async def flush(self) -> None:
        """Raises StoreFailed."""
        async with self._one:
            if self._writes == self._flushed:
                return
            writes = self._writes
            content = self.content()
            keys, self._dirty, self._since = sorted(self._dirty), set(), None
            self.home.flushing = content
            try:
                await self.home.sync()
            except OSError as error:
                raise StoreFailed(f"the store can't be written: {error}") from error
            finally:
                if self.home.flushing is content:
                    self.home.flushing = None
            self._flushed = writes
            self._keep(content)
            self.owner.flushed(keys, {key: content[Table.KEY].get(key) for key in keys})

    def _keep(self, content: Content) -> None:
        self._flushes += 1
        self._disk = self.home.stored = content
        self.home.flushes = self._flushes

    def receive_snapshot(self, meta: SnapshotMeta) -> SimSnapshotWriter:  # type: ignore[override]
        if self._writer is not None:
            self._writer.close()
        self._writer = SimSnapshotWriter(self, meta)
        return self._writer

    async def replace_by(self, content: Content) -> None:
        """It is marked complete: from now on it may be the store at the next start."""
        async with self._one:
            self.home.replacing = content
            await self.home.sync_names()
            self.home.replacing = None
            self.home.replace([dict(table) for table in content])
            self.home.on_replaced()
            self._disk, self._flushes = self.home.stored, self.home.flushes
            self._dirty, self._flushed = set(), self._writes
            self.replace_content(content)
        self.owner.reload()
