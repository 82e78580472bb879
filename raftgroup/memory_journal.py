"""The journal without a disk, for the simulator and for tests.

It gives the guarantees of the real one and no more: `crash` loses exactly what a power failure may lose.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from palisade.raftgroup.errors import NodeFailed
from palisade.raftgroup.journal import BufferedJournal, LogChanges, StoredLog
from palisade.raftgroup.ports import Entry


async def _at_once() -> None:
    return


class MemoryStorage:
    """A `raftgroup.journal.LogStorage`. `before_sync` is the simulated disk: it may wait, or raise OSError to fail."""

    def __init__(self, before_sync: Callable[[], Awaitable[None]] = _at_once) -> None:
        self.before_sync = before_sync
        self.stored = StoredLog()
        self.writing: LogChanges | None = None
        self._task: asyncio.Future[None] | None = None
        self._lives = 0

    def load(self, start: int, stop: int) -> Sequence[Entry]:
        raise NodeFailed(f"entries {start} to {stop - 1} are neither in memory nor on disk")

    def write(self, changes: LogChanges, ended: Callable[[Exception | None], None]) -> None:
        self.writing = changes
        self._task = asyncio.ensure_future(self._write(changes, ended, self._lives))

    async def _write(self, changes: LogChanges, ended: Callable[[Exception | None], None], life: int) -> None:
        """Continues if the caller of `sync` is cancelled, as a real disk does."""
        try:
            await self.before_sync()
        except OSError as error:
            failure = NodeFailed(f"the journal can't be written: {error}. Restart the node")
            failure.__cause__ = error
            if life == self._lives:
                ended(failure)
            return
        if life == self._lives:
            self.land()
            ended(None)

    def land(self) -> None:
        """The write in progress reaches the disk."""
        if self.writing is not None:
            self.stored, self.writing = stored_after(self.stored, self.writing), None

    def crash(self) -> None:
        """The write in progress is lost."""
        self._lives += 1
        self.writing = self._task = None

    def close(self) -> None:
        return


class MemoryJournal(BufferedJournal):
    """A `raftgroup.ports.Journal` whose disk is a `MemoryStorage`."""

    def __init__(self, before_sync: Callable[[], Awaitable[None]] = _at_once) -> None:
        self.disk = MemoryStorage(before_sync)
        super().__init__(self.disk.stored, self.disk)

    @property
    def is_syncing(self) -> bool:
        return self.disk.writing is not None

    def land(self) -> None:
        """The sync in progress reaches the disk, but `sync` does not return: as when a process dies in its `fsync`."""
        self.disk.land()

    def close(self) -> None:
        """Nothing to release: the same journal serves the next start of its node."""

    def crash(self) -> None:
        """Lose everything for which no `sync` has returned, including the sync in progress (but see `land`)."""
        self.disk.crash()
        self._waiting.clear()
        self._begin_with(self.disk.stored)


def stored_after(stored: StoredLog, changes: LogChanges) -> StoredLog:
    """The content of a disk after `changes`. Pure; in the same order as `JournalFile`."""
    entries = [] if changes.forget else stored.entries
    if changes.delete_from is not None:
        entries = [entry for entry in entries if entry.index < changes.delete_from]
    base_index, base_term = changes.base or (stored.base_index, stored.base_term)
    term, vote = changes.term_and_vote or (stored.term, stored.vote)
    if changes.entries:
        entries = [*entries, *changes.entries]
    if entries and entries[0].index <= base_index:
        entries = [entry for entry in entries if entry.index > base_index]
    return StoredLog(base_index, base_term, term, vote, stored.meta | changes.meta, entries)
