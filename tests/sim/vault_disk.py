"""The vault of a simulated machine: LMDB without syncs, on a disk that is slow, full, failing, or loses its power.

*Time.* A commit is pages of the system: it takes none, but where the disk is slow the system has the writer wait now
and then. What the product syncs takes the time of any sync: the mark of a run before its first commit, and the whole
when it is closed, both in its event loop, which stands still; a new file and one that was verified, in a thread.

*Refusals.* On a full disk a commit finds room, or not; on one that fails it fails, or not, and what fails in the head of
the file makes it useless until it is opened again. The fence page lies on blocks that it has: only a failing disk
refuses it.

*Without power* the file is as after any of the commits that nobody has synced, or torn: some tables or rows as after
one commit, some as after another. The record of LV and what else is in META is one page. Found in another start of the
machine it is verified by the product's own code; whether the structure of its pages is torn, too, lots say.
"""

from __future__ import annotations

import asyncio
import enum
import errno
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Any

from tests.sim.schedule import FastProcess
from vault.errors import RESET, VaultDamaged, VaultUnusable
from vault.fence_page import FencePage
from vault.memory_backend import Content, MemoryBackend, MemoryTransaction
from vault.tables import Changes, Pause, Table
from vault.vault import Vault
from vault.verification import verify

if TYPE_CHECKING:
    from tests.sim.disk import Disk

COMMITS_THAT_WAIT = 0.15
"""Of those on a slow disk: the system has written too little of what came before."""
WAITS_S_MAX = 0.2
"""As Linux has who writes too much wait (MAX_PAUSE)."""
COMMITS_WITHOUT_ROOM, COMMITS_THAT_FAIL, PAGES_THAT_FAIL, FAILURES_IN_THE_HEAD = 0.5, 0.4, 0.1, 0.5
TORN_PAGES = 0.3
BEHIND_MAX = 40
"""So many commits may be on the disk in part. What is older was written long ago."""


class Trouble(enum.Enum):
    """Of a disk, with a vault."""

    COMMIT_WAITS = "commit-waits"
    SYNC_WAITS = "sync-waits"
    NO_ROOM = "no-room"
    COMMIT_FAILS = "commit-fails"
    USELESS = "useless"
    """It failed in the head of the file: nothing is taken until it is opened again."""
    SYNC_FAILS = "sync-fails"
    PAGE_FAILS = "page-fails"


class Loss(enum.Enum):
    """What a machine without power has of what was not synced."""

    NOTHING = "nothing"
    NEWEST = "newest"
    ALL = "all"
    TORN = "torn"


class Found(enum.Enum):
    """What a start in another boot finds out."""

    SOUND = "sound"
    TORN_PAGES = "torn-pages"
    MIXED_CONTENT = "mixed-content"


class Killed(BaseException):
    """The process died in the middle of a turn of its loop: what is left of it writes nothing."""


class Hand:
    """Whoever writes into vault and fence page: the process of the present start. `dies_at`: so many writes from now it
    is killed, before that write, or behind it. `writer_is_dead`: of whoever's turn it is: one that stood still when it
    died comes to its next write when the next start has begun."""

    def __init__(self, writer_is_dead: Callable[[], bool] = lambda: False) -> None:
        self.dies_at = 0
        self.behind = False
        self.is_dead: Callable[[], bool] = lambda: False
        self.die: Callable[[], None] = lambda: None
        self._writer_is_dead = writer_is_dead

    def write(self, work: Callable[[], None]) -> None:
        if self.is_dead() or self._writer_is_dead():
            raise Killed
        now = self.dies_at == 1
        self.dies_at = max(0, self.dies_at - 1)
        if not now or self.behind:
            work()
        if now:
            self.die()
            raise Killed


class Page(bytearray):
    """The memory that node and readers share."""

    disk: Disk

    def __setitem__(self, index: Any, value: Any) -> None:
        disk = self.disk
        if disk.failing and disk.chance.random() < PAGES_THAT_FAIL:
            raise disk.refused(Trouble.PAGE_FAILS, errno.EIO)
        disk.hand.write(lambda: super(Page, self).__setitem__(index, value))


class SimBackend(MemoryBackend):
    """Of all starts of a node. Readers share a snapshot until the next commit."""

    disk: Disk

    def __init__(self) -> None:
        super().__init__()
        self._shared: MemoryTransaction | None = None
        self._shared_at = -1
        self.boot: bytes | None = None
        """In which start of the machine something was written that may not be on the disk; as the mark says."""
        self.torn = False
        """For those who judge; nobody who opens the vault knows."""
        self.made = False
        self._behind: deque[tuple[Changes, Sequence[Table]]] = deque()
        """The newest commits that were not synced."""
        self._before: Content = {table: {} for table in Table}
        """As it was before these."""
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

    def commit(self, changes: Changes, cleared: Sequence[Table] = ()) -> None:
        """Raises VaultUnusable, with nothing changed."""
        if self._slicing:
            raise RuntimeError("a commit in slices is under way: nothing else may be committed meanwhile")
        self._commit(changes, cleared)

    async def commit_in_slices(self, slices: Callable[[], Iterator[Changes]], pause: Pause) -> None:
        gathered: dict[Table, dict[bytes, bytes | None]] = {}
        self._slicing = True
        try:
            for part in slices():
                for table, rows in part.items():
                    gathered.setdefault(table, {}).update(rows)
                await pause()
            self._commit(gathered, ())
        finally:
            self._slicing = False

    def _commit(self, changes: Changes, cleared: Sequence[Table]) -> None:
        if not self._marked:
            self.disk.hand.write(self._mark)
        self.disk.hand.write(lambda: self._write(changes, cleared))

    def _mark(self) -> None:
        self.boot = self.disk.boot
        self.disk.sync_in_the_loop()
        self._marked = True

    def _write(self, changes: Changes, cleared: Sequence[Table]) -> None:
        disk = self.disk
        if self._useless:
            raise disk.refused(Trouble.USELESS, errno.EIO)
        if disk.failing and disk.chance.random() < COMMITS_THAT_FAIL:
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

    async def vouch(self) -> None:
        """The file, which was suspect, was found sound. Raises VaultUnusable."""
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

    # Whatever happens to it meanwhile

    def fill(self, content: Changes) -> None:
        """It is a copy, whole, and on the disk."""
        super().commit(content)
        self.made = True
        self.sync()

    def damage(self, table: Table, key: bytes, value: bytes) -> None:
        super().commit({table: {key: value}})

    def lose_power(self) -> None:
        """All that was not synced is gone."""
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
        """Of those that were not synced."""
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
        return {table: dict((one if table is Table.META else other)[table]) for table in Table}
    for table in Table:
        if lot < 0.7 or table is Table.META:
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


def _apply(content: Content, changes: Changes, cleared: Sequence[Table]) -> None:
    for table in cleared:
        content[table] = {}
    for table, rows in changes.items():
        there = content[table]
        for key, value in rows.items():
            if value is None:
                there.pop(key, None)
            else:
                there[key] = value


class VaultDisk:
    """What a `Disk` is to a vault."""

    fsync_s: float
    full: bool
    failing: bool

    def __init__(self, simulation: Any, fsync_s: float, count: Callable[[str], None]) -> None:
        self.chance: Random = simulation.random
        self._simulation, self._well_s, self._count = simulation, fsync_s, count
        self.hand = Hand(self._writer_is_dead)

    def _writer_is_dead(self) -> bool:
        turning = self._simulation.turning
        return turning is not None and turning.dead

    def tell(self, what: Trouble | Loss | Found) -> None:
        group = {Trouble: "vault disk", Loss: "vault without power", Found: "vault of another boot"}[type(what)]
        self._count(f"{group}: {what.value}")

    def refused(self, trouble: Trouble, number: int) -> VaultUnusable:
        self.tell(trouble)
        cause = OSError(number, os.strerror(number))
        error = VaultUnusable(f"the vault can't be used: {cause}. Make room on the disk, and start the node again")
        error.__cause__ = cause
        return error

    @property
    def is_slow(self) -> bool:
        return self.fsync_s > self._well_s

    def sync_s(self) -> float:
        """How long the next one takes."""
        return self.fsync_s * (0.5 + self.chance.random())

    def check(self) -> None:
        """Raises OSError."""
        if self.failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def sync_in_the_loop(self) -> None:
        """Raises VaultUnusable, Killed."""
        self._synced_by(lambda: self._stand_still(self.sync_s()))

    async def sync_in_a_thread(self) -> None:
        """Raises VaultUnusable."""
        await asyncio.sleep(self.sync_s())
        self._synced_by(lambda: None)

    def _synced_by(self, wait: Callable[[], None]) -> None:
        if self.is_slow:
            self.tell(Trouble.SYNC_WAITS)
        wait()
        try:
            self.check()
        except OSError as error:
            raise self.refused(Trouble.SYNC_FAILS, error.errno or 0) from error

    @contextmanager
    def throttled(self) -> Iterator[None]:
        """What is done in it is seen by others in the middle of the time that it takes."""
        if not self.is_slow or self.chance.random() >= COMMITS_THAT_WAIT:
            yield
            return
        self.tell(Trouble.COMMIT_WAITS)
        for_s = min(WAITS_S_MAX, self.fsync_s) * self.chance.random()
        self._stand_still(for_s)
        yield
        self._stand_still(for_s)

    def _stand_still(self, for_s: float) -> None:
        process = self._simulation.turning
        if isinstance(process, FastProcess):
            process.stand_still_for(for_s)
            if process.dead:
                raise Killed


class SimVaultHome:
    """A `node.vault_home.VaultHome`: the vault of one start of a node."""

    def __init__(self, disk: Disk, now: Callable[[], float]) -> None:
        self._disk, self._now = disk, now
        self.on_report: Callable[[Any], None] = lambda report: None
        self.on_open: Callable[[Vault], None] = lambda vault: None

    async def open(self) -> Vault:
        """In the order of `vault.opening`, in a thread. Raises VaultDamaged, VaultUnusable."""
        await asyncio.sleep(0.001)
        disk, backend = self._disk, self._disk.backend
        disk.read("vault")
        suspect = backend.suspect
        if suspect:
            with self._finds(Found.TORN_PAGES):
                backend.check_structure()
        page = FencePage(disk.page, disk.boot, first_sequence=int(self._now() * 1e9))
        backend.opened(page)
        if not backend.made:
            await disk.sync_in_a_thread()
            backend.made = True
        vault = Vault(backend, page)
        if suspect:
            with self._finds(Found.MIXED_CONTENT):
                for _ in verify(vault):
                    await asyncio.sleep(0)
            await backend.vouch()
            disk.tell(Found.SOUND)
        self.on_open(vault)
        return vault

    @contextmanager
    def _finds(self, found: Found) -> Iterator[None]:
        try:
            yield
        except VaultDamaged:
            self._disk.tell(found)
            raise

    def vault_id(self) -> str:
        return self._disk.vault_id

    def keep(self, report: Any) -> None:
        self.on_report(report)
