"""The disk of a simulated machine as its vault sees it: slow, full, failing.

*Time.* A commit writes pages of the system and takes none, except that on a slow disk the system sometimes makes the
writer wait. The product's own syncs take the time of any sync: the mark of a run before its first commit, and the whole
file when it is closed, both in its event loop, which is blocked; a new file and a verified one in a thread.

*Refusals.* On a full disk a commit finds room, or not; on a failing one it fails, or not, and a failure in the head of
the file makes it useless until it is opened again. The fence page lies on allocated blocks: only a failing disk refuses
it.
"""

from __future__ import annotations

import asyncio
import enum
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from palisade.vault.errors import VaultUnusable
from tests.support import machine

if TYPE_CHECKING:
    from tests.sim.disk import Disk

COMMITS_THAT_WAIT = 0.15
"""Of commits on a slow disk: the system has written too little of the earlier ones."""
WAITS_S_MAX = 0.2
"""How long Linux makes a writer wait (MAX_PAUSE)."""
PAGES_THAT_FAIL = 0.1


class Trouble(enum.Enum):
    """Of a disk, with a vault."""

    COMMIT_WAITS = "commit-waits"
    SYNC_WAITS = "sync-waits"
    NO_ROOM = "no-room"
    COMMIT_FAILS = "commit-fails"
    USELESS = "useless"
    """It failed in the head of the file: nothing is accepted until it is opened again."""
    SYNC_FAILS = "sync-fails"
    PAGE_FAILS = "page-fails"


class Loss(enum.Enum):
    """What a machine without power keeps of unsynced data."""

    NOTHING = "nothing"
    NEWEST = "newest"
    ALL = "all"
    TORN = "torn"


class Found(enum.Enum):
    """The result of a start in another boot."""

    SOUND = "sound"
    TORN_PAGES = "torn-pages"
    MIXED_CONTENT = "mixed-content"


class Killed(BaseException):
    """The process died in the middle of a turn of its loop: its remaining code writes nothing."""


class Hand:
    """The writer of vault and fence page: the process of the current start. `dies_at`: after so many writes from now it
    is killed, before that write, or after it. `writer_is_dead`: of the process that has its turn: one that was
    suspended when it died reaches its next write when the next start has begun."""

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
        if disk.bad_vault and disk.chance.random() < PAGES_THAT_FAIL:
            raise disk.refused(Trouble.PAGE_FAILS, errno.EIO)
        disk.hand.write(lambda: super(Page, self).__setitem__(index, value))


class VaultDisk(machine.Disk):
    """`bad_vault`: it fails only where the vault is stored."""

    def __init__(self, simulation: Any, count: Callable[[str], None]) -> None:
        super().__init__(simulation.random)
        self.bad_vault = False
        self._simulation, self._count = simulation, count
        self.hand = Hand(self._writer_is_dead)

    def _writer_is_dead(self) -> bool:
        turning = self._simulation.turning
        return turning is not None and turning.dead

    def report(self, what: Trouble | Loss | Found) -> None:
        group = {Trouble: "vault disk", Loss: "vault without power", Found: "vault of another boot"}[type(what)]
        self._count(f"{group}: {what.value}")

    def refused(self, trouble: Trouble, number: int) -> VaultUnusable:
        self.report(trouble)
        cause = OSError(number, os.strerror(number))
        error = VaultUnusable(f"the vault can't be used: {cause}. Make room on the disk, and start the node again")
        error.__cause__ = cause
        return error

    def sync_in_the_loop(self) -> None:
        """Raises VaultUnusable, Killed."""
        self._synced_by(lambda: self._stand_still(self.sync_s()))

    async def sync_in_a_thread(self) -> None:
        """Raises VaultUnusable."""
        await asyncio.sleep(self.sync_s())
        self._synced_by(lambda: None)

    def _synced_by(self, wait: Callable[[], None]) -> None:
        if self.is_slow:
            self.report(Trouble.SYNC_WAITS)
        wait()
        try:
            self.check()
        except OSError as error:
            raise self.refused(Trouble.SYNC_FAILS, error.errno or 0) from error

    @contextmanager
    def throttled(self) -> Iterator[None]:
        """Its effects are visible to others in the middle of the time that it takes."""
        if not self.is_slow or self.chance.random() >= COMMITS_THAT_WAIT:
            yield
            return
        self.report(Trouble.COMMIT_WAITS)
        for_s = min(WAITS_S_MAX, self.fsync_s) * self.chance.random()
        self._stand_still(for_s)
        yield
        self._stand_still(for_s)

    def _stand_still(self, for_s: float) -> None:
        process = self._simulation.turning
        if process is not None:
            process.stand_still_for(for_s)
            if process.dead:
                raise Killed
