"""The vault of a simulated machine: LMDB without syncs, for all starts of its node.

Without power the file is as after any of the unsynced commits, or torn: some tables or rows as after one commit, some
as after another. The record of LV and the rest of META is one page. Found in another boot of the machine it is verified
by the product's own code; whether the structure of its pages is torn, too, is drawn at random.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING

from palisade.vault.errors import RESET, VaultDamaged
from palisade.vault.fence_page import FencePage
from palisade.vault.memory_tables import Content, MemoryBackend, MemoryTransaction
from palisade.vault.tables import Changes, Pause, VaultTable
from tests.sim.vault_disk import Loss, Trouble

if TYPE_CHECKING:
    from tests.sim.disk import Disk

COMMITS_WITHOUT_ROOM, COMMITS_THAT_FAIL, FAILURES_IN_THE_HEAD = 0.5, 0.4, 0.5
TORN_PAGES = 0.3
BEHIND_MAX = 40
"""So many commits may be on the disk in part. Older ones were written completely."""


class SimBackend(MemoryBackend):
    """Of all starts of a node. Readers share a snapshot until the next commit."""

    disk: Disk

    def __init__(self) -> None:
        super().__init__()
        self._shared: MemoryTransaction | None = None
        self._shared_at = -1
        self.boot: bytes | None = None
        """The boot of the machine in which data were written that may not be on the disk; according to the mark."""
        self.torn = False
        """For checkers; the code that opens the vault does not know it."""
        self.made = False
        self._behind: deque[tuple[Changes, Sequence[VaultTable]]] = deque()
        """The newest unsynced commits."""
        self._before: Content = {table: {} for table in VaultTable}
        """The state before these."""
        self._page: FencePage | None = None
        self._marked = self._slicing = self._useless = False

    # One start of a node

    def opened(self, page: FencePage) -> None:
        self._page = page
        self._marked = self._slicing = self._useless = False

    @property
    def suspect(self) -> bool:
        return self.boot is not None and self.boot != self.disk.boot and any(self._tables.values())

    def check_structure(self) -> None:
        """Raises VaultDamaged."""
        if self.torn and self.disk.chance.random() < TORN_PAGES:
            raise self._damaged("the vault is damaged: a page is not what it should be")

    def _damaged(self, why: str) -> VaultDamaged:
        return VaultDamaged(f"{why}: {RESET}")

    def commit(self, changes: Changes, cleared: Sequence[VaultTable] = ()) -> None:
        """Raises VaultUnusable, with nothing changed."""
        if self._slicing:
            raise RuntimeError("a commit in slices is under way: nothing else may be committed meanwhile")
        self._commit(changes, cleared)

    async def commit_in_slices(self, slices: Callable[[], Iterator[Changes]], pause: Pause) -> None:
        gathered: dict[VaultTable, dict[bytes, bytes | None]] = {}
        self._slicing = True
        try:
            for part in slices():
                for table, rows in part.items():
                    gathered.setdefault(table, {}).update(rows)
                await pause()
            self._commit(gathered, ())
        finally:
            self._slicing = False

    def _commit(self, changes: Changes, cleared: Sequence[VaultTable]) -> None:
        if not self._marked:
            self.disk.hand.write(self._mark)
        self.disk.hand.write(lambda: self._write(changes, cleared))

    def _mark(self) -> None:
        self.boot = self.disk.boot
        self.disk.sync_in_the_loop()
        self._marked = True

    def _write(self, changes: Changes, cleared: Sequence[VaultTable]) -> None:
        disk = self.disk
        if self._useless:
            raise disk.refused(Trouble.USELESS, errno.EIO)
        if disk.bad_vault and disk.chance.random() < COMMITS_THAT_FAIL:
            self._useless = disk.chance.random() < FAILURES_IN_THE_HEAD
            raise disk.refused(Trouble.USELESS if self._useless else Trouble.COMMIT_FAILS, errno.EIO)
        if disk.full and disk.chance.random() < COMMITS_WITHOUT_ROOM:
            raise disk.refused(Trouble.NO_ROOM, errno.ENOSPC)
        with disk.throttled():
            super().commit(changes, cleared)
            self._behind.append((changes, cleared))
            if len(self._behind) > BEHIND_MAX:
                _apply(self._before, *self._behind.popleft())

    def close(self) -> None:
        """Raises VaultUnusable: then it is not synced, and the mark stays."""
        if self._page is not None:
            self._page.refuse()
            self._page = None
        if self._marked:
            self.disk.sync_in_the_loop()
            self.sync()

    async def mark_verified(self) -> None:
        """The file, which was suspect, was verified. Raises VaultUnusable."""
        await self.disk.sync_in_a_thread()
        self.sync()

    def sync(self) -> None:
        super().sync()
        self._behind.clear()
        self._before = _copied(self._tables)
        self.boot, self._marked, self.torn = None, False, False

    def begin(self) -> MemoryTransaction:
        if self._shared is None or self._shared_at != self.commits:
            self._shared, self._shared_at = super().begin(), self.commits
        return self._shared

    # Events

    def fill(self, content: Changes) -> None:
        """It is a complete copy on the disk."""
        super().commit(content)
        self.made = True
        self.sync()

    def damage(self, table: VaultTable, key: bytes, value: bytes) -> None:
        super().commit({table: {key: value}})

    def lose_power(self) -> None:
        """All unsynced data are lost."""
        super().lose_power()
        self._forget_what_is_behind()

    def _forget_what_is_behind(self) -> None:
        self._behind.clear()
        self._before = _copied(self._tables)
        self._shared, self._page = None, None
        self._keys.clear()

    def without_power(self, chance: Random) -> Loss | None:
        """None: all had been synced."""
        if not self._behind:
            return None
        loss = chance.choice((*Loss, Loss.TORN))
        if loss is Loss.ALL:
            self.lose_power()
        elif loss is Loss.NEWEST:
            self._tables = self._after(chance.randrange(len(self._behind)))
        elif loss is Loss.TORN:
            older = chance.randrange(len(self._behind))
            newer = min(len(self._behind), older + chance.choice((1, 2, 3)))
            self._tables = mixed(self._after(older), self._after(newer), chance)
            self.torn = True
        self._forget_what_is_behind()
        return loss

    def _after(self, commits: int) -> Content:
        """After a random one of the unsynced commits."""
        content = _copied(self._before)
        for changes, cleared in list(self._behind)[:commits]:
            _apply(content, changes, cleared)
        return content


def mixed(one: Content, other: Content, chance: Random) -> Content:
    """META as in one and all else as in the other, or each table as in either of them, or some of its rows."""
    found: Content = {}
    lot = chance.random()
    if lot < 0.2:
        one, other = other, one
    if lot < 0.4:
        return {table: dict((one if table is VaultTable.META else other)[table]) for table in VaultTable}
    for table in VaultTable:
        if lot < 0.7 or table is VaultTable.META:
            found[table] = dict(chance.choice((one, other))[table])
            continue
        rows = found[table] = dict(one[table])
        for key in sorted({*one[table], *other[table]}):
            if one[table].get(key) == other[table].get(key) or chance.random() < 0.5:
                continue
            rows.pop(key, None)
            if key in other[table]:
                rows[key] = other[table][key]
    return found


def _copied(content: Content) -> Content:
    return {table: dict(rows) for table, rows in content.items()}


def _apply(content: Content, changes: Changes, cleared: Sequence[VaultTable]) -> None:
    for table in cleared:
        content[table] = {}
    for table, rows in changes.items():
        there = content[table]
        for key, value in rows.items():
            if value is None:
                there.pop(key, None)
            else:
                there[key] = value
