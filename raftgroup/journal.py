"""The journal without a disk, for the simulator and for tests.

It keeps the promise of the real one and nothing more: `crash` takes away exactly what a loss of power may take.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from raftgroup.errors import NodeFailed
from raftgroup.log_state import Changes, LogState, Stored
from raftgroup.ports import Entry


async def _at_once() -> None:
    return


class MemoryJournal:
    """A `raftgroup.ports.Journal`. `before_sync` is the simulated disk: it may wait, or raise OSError to fail."""

    def __init__(self, before_sync: Callable[[], Awaitable[None]] = _at_once) -> None:
        self._before_sync = before_sync
        self._disk = Stored()
        self._lives = 0
        self._writing: asyncio.Future[None] | None = None
        self._flying: Changes | None = None
        self._state = LogState(self._disk, _nothing_else)

    @property
    def is_syncing(self) -> bool:
        return self._flying is not None

    def land(self) -> None:
        """What is being synced right now is on the disk, and nobody is told: as when a process dies in its `fsync`."""
        if self._flying is not None:
            self._disk, self._flying = stored_after(self._disk, self._flying), None

    def crash(self) -> None:
        """Lose everything that no `sync` has returned for, also what is being synced right now (but see `land`)."""
        self._lives += 1
        self._writing = self._flying = None
        self._state = LogState(self._disk, _nothing_else)

    @property
    def first(self) -> Entry:
        return self._state.base

    @property
    def last(self) -> Entry:
        return self._state.last

    @property
    def term(self) -> int:
        return self._state.term

    @property
    def vote(self) -> str | None:
        return self._state.vote

    @property
    def synced_index(self) -> int:
        return self._state.synced_index

    @property
    def dirty(self) -> bool:
        return self._state.dirty

    def term_at(self, index: int) -> int | None:
        return self._state.term_at(index)

    def slice(self, start: int, stop: int) -> Sequence[Entry]:
        return self._state.slice(start, stop)

    def append(self, entry: Entry) -> None:
        self._state.append(entry)

    def truncate_from(self, index: int) -> None:
        self._state.truncate_from(index)

    def compact_to(self, index: int) -> None:
        self._state.compact_to(index)

    def reset(self, index: int, term: int) -> None:
        self._state.reset(index, term)

    def set_term(self, term: int, vote: str | None) -> None:
        self._state.set_term(term, vote)

    def get_meta(self, name: str) -> bytes | None:
        return self._state.meta.get(name)

    def set_meta(self, name: str, value: bytes) -> None:
        self._state.set_meta(name, value)

    async def sync(self) -> None:
        wanted, life = self._state.number, self._lives
        while life == self._lives and self._state.saved < wanted:
            if self._writing is None:
                self._writing = asyncio.ensure_future(self._write(life))
            await asyncio.shield(self._writing)
        if life != self._lives:
            raise NodeFailed("the node lost its power during a sync")

    async def _write(self, life: int) -> None:
        """Goes on when who waits for it is cancelled, as a real disk does."""
        changes = self._flying = self._state.take()
        try:
            await self._before_sync()
        except OSError as error:
            raise NodeFailed(f"the journal can't be written: {error}. Restart the node") from error
        if life == self._lives:
            self._disk, self._flying = stored_after(self._disk, changes), None
            self._state.landed(changes)
            self._writing = None

    def close(self) -> None:
        return


def stored_after(stored: Stored, changes: Changes) -> Stored:
    """What a disk holds after `changes`. Pure; as `LmdbJournal` does it, in the same order."""
    entries = [] if changes.forget else stored.entries
    if changes.delete_from is not None:
        entries = [entry for entry in entries if entry.index < changes.delete_from]
    base_index, base_term = changes.base or (stored.base_index, stored.base_term)
    term, vote = changes.term_and_vote or (stored.term, stored.vote)
    if changes.entries:
        entries = [*entries, *changes.entries]
    if entries and entries[0].index <= base_index:
        entries = [entry for entry in entries if entry.index > base_index]
    return replace(
        stored,
        base_index=base_index,
        base_term=base_term,
        term=term,
        vote=vote,
        meta=stored.meta | changes.meta,
        entries=entries,
    )


def _nothing_else(start: int, stop: int) -> Sequence[Entry]:
    raise NodeFailed(f"entries {start} to {stop - 1} are neither in memory nor on disk")
