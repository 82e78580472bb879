"""The journal: log, term and vote in memory, and the changes that are not yet on disk.

`BufferedJournal` is the one implementation of `raftgroup.ports.Journal`; the disk below it is a `LogStorage`. A storage
takes `LogChanges` (everything since the last write) in one piece. Three invariants, checked where they could break:

- the entries are contiguous; an index below the base, or the base itself, is never truncated
- the term never decreases, and the vote of a term is given once and never changed (Raft, section 5.2)
- every entry that is not on disk is in memory: only synced entries are dropped from memory
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from palisade.raftgroup.errors import NodeFailed
from palisade.raftgroup.ports import Entry

ENTRY_OVERHEAD_BYTES = 200
"""Memory of an entry beyond its command: the tuple, its numbers, the header of the bytes."""


@dataclass(slots=True)
class StoredLog:
    """The part of the stored log that is read at the start: `entries` are the newest ones, contiguous up to the end."""

    base_index: int = 0
    base_term: int = 0
    term: int = 0
    vote: str | None = None
    meta: dict[str, bytes] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LogChanges:
    """Changes for the disk, to be made in the order of the fields, all or nothing. `forget`: drop all entries first."""

    number: int
    forget: bool
    delete_from: int | None
    entries: Sequence[Entry]
    base: tuple[int, int] | None
    term_and_vote: tuple[int, str | None] | None
    meta: dict[str, bytes]


class LogStorage(Protocol):
    """The disk of a journal."""

    def load(self, start: int, stop: int) -> Sequence[Entry]:
        """The stored entries with start <= index < stop. Raises JournalCorrupt."""
        ...

    def write(self, changes: LogChanges, ended: Callable[[Exception | None], None]) -> None:
        """Make `changes` durable, all or nothing, then call `ended` once, with the error or None. `ended` may be
        called before this returns. The next write begins after the end of this one."""
        ...

    def close(self) -> None: ...


class BufferedJournal:
    """`memory_bytes`: maximum size of the stored entries that are also kept in memory."""

    def __init__(self, stored: StoredLog, storage: LogStorage, memory_bytes: int | None = None) -> None:
        self._storage = storage
        self._memory_bytes = memory_bytes
        self._waiting: deque[tuple[int, Callable[[Exception | None], None]]] = deque()
        """Syncs that have not ended, in order: the number of the last change that each waits for, and its callback."""
        self._closed = False
        self._begin_with(stored)

    def _begin_with(self, stored: StoredLog) -> None:
        self.first = Entry(b"", stored.base_index, stored.base_term)
        self.term, self.vote = stored.term, stored.vote
        self._meta = dict(stored.meta)
        self._entries = list(stored.entries)
        self.last = self._entries[-1] if self._entries else self.first
        self._start = self.last.index + 1 - len(self._entries)
        self._bytes = sum(map(_bytes_of, self._entries))
        self.synced_index = self.last.index
        self._written_index = self.last.index
        self._landing_index = self.last.index
        self.written = self.saved = 0
        self._forget = False
        self._delete_from: int | None = None
        self._base_changed = self._vote_changed = False
        self._meta_changed: dict[str, bytes] = {}
        self._writing: LogChanges | None = None
        self._failure: Exception | None = None

    @property
    def dirty(self) -> bool:
        return self.saved < self.written

    def term_at(self, index: int) -> int | None:
        if index >= self._start:
            return self._entries[index - self._start].term if index <= self.last.index else None
        if index <= self.first.index:
            return self.first.term if index == self.first.index else None
        return self._storage.load(index, index + 1)[0].term

    def slice(self, start: int, stop: int) -> Sequence[Entry]:
        if start >= self._start:
            return self._entries[start - self._start : max(stop - self._start, 0)]
        head: list[Entry] = [self.first] if start <= self.first.index < stop else []
        start, stop = max(start, self.first.index + 1), min(stop, self.last.index + 1)
        if start < min(stop, self._start):
            head.extend(self._storage.load(start, min(stop, self._start)))
        return head + self._entries[max(start - self._start, 0) : max(stop - self._start, 0)]

    def append(self, entry: Entry) -> None:
        if entry.index != self.last.index + 1 or entry.term < self.last.term:
            raise NodeFailed(
                f"entry {entry.index} of term {entry.term} can't follow entry {self.last.index} of term "
                f"{self.last.term}: the log of this node is inconsistent; restart the node"
            )
        self._entries.append(entry)
        self.last = entry
        self._bytes += len(entry.command) + ENTRY_OVERHEAD_BYTES
        self.written += 1

    def truncate_from(self, index: int) -> None:
        if index > self.last.index:
            return
        if index <= self.first.index:
            raise NodeFailed(
                f"entry {index} is to be removed, but everything up to {self.first.index} is committed: this node "
                "and its leader disagree about committed entries. Compare the digests of all nodes"
            )
        kept = max(index - self._start, 0)
        self._bytes -= sum(map(_bytes_of, self._entries[kept:]))
        del self._entries[kept:]
        self._start = min(self._start, index)
        self.last = self._entries[-1] if self._entries else self._stored_entry(index - 1)
        if index <= self._written_index:
            self._delete_from = index if self._delete_from is None else min(self._delete_from, index)
            self._written_index = index - 1
        self._not_synced_from(index)
        self.written += 1

    def compact_to(self, index: int) -> None:
        if index <= self.first.index:
            return
        term = self.term_at(index)
        if term is None:
            raise NodeFailed(f"the log can't be compacted to {index}: it ends at {self.last.index}")
        if index > self._written_index:
            self._forget, self._delete_from, self._written_index = True, None, index
        self._drop_below(index + 1)
        self.first = Entry(b"", index, term)
        if self.last.index == index:
            self.last = self.first
        self._base_changed = True
        self.written += 1

    def reset(self, index: int, term: int) -> None:
        self.first = self.last = Entry(b"", index, term)
        self._entries.clear()
        self._bytes = 0
        self._start = index + 1
        self._forget, self._base_changed, self._delete_from = True, True, None
        self._written_index = index
        self._not_synced_from(index)
        self.written += 1

    def set_term(self, term: int, vote: str | None) -> None:
        if (term, vote) == (self.term, self.vote):
            return
        if term < self.term or (term == self.term and self.vote is not None):
            raise NodeFailed(
                f"term {term} with a vote for {vote} can't follow term {self.term} with a vote for {self.vote}: "
                "a term never decreases and a vote never changes. Restart the node"
            )
        self.term, self.vote = term, vote
        self._vote_changed = True
        self.written += 1

    def get_meta(self, name: str) -> bytes | None:
        return self._meta.get(name)

    def set_meta(self, name: str, value: bytes) -> None:
        if self._meta.get(name) != value:
            self._meta[name] = self._meta_changed[name] = value
            self.written += 1

    async def sync(self) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.begin_sync(lambda failure: _settle(done, failure))
        await done

    def begin_sync(self, ended: Callable[[Exception | None], None]) -> None:
        """Calls during a write share the next write."""
        self._waiting.append((self.written, ended))
        self._advance()

    def close(self) -> None:
        """Changes that are not synced are lost, as in a crash."""
        if not self._closed:
            self._closed = True
            self._storage.close()
            self._advance()

    def _advance(self) -> None:
        """End the syncs that are done or have failed; start a write if one is left and no write is in progress."""
        while self._waiting:
            wanted, ended = self._waiting[0]
            if self.saved >= wanted or self._failure is not None or self._closed:
                self._waiting.popleft()
                ended(None if self.saved >= wanted else self._failure or NodeFailed("the journal is closed"))
            elif self._writing is None:
                self._writing = self._unwritten()
                self._storage.write(self._writing, self._ended)
            else:
                return

    def _unwritten(self) -> LogChanges:
        """All changes that have not been passed to the storage."""
        changes = LogChanges(
            number=self.written,
            forget=self._forget,
            delete_from=self._delete_from,
            entries=self._entries[max(self._written_index + 1 - self._start, 0) :],
            base=(self.first.index, self.first.term) if self._base_changed else None,
            term_and_vote=(self.term, self.vote) if self._vote_changed else None,
            meta=self._meta_changed,
        )
        self._written_index = self._landing_index = self.last.index
        self._forget = self._base_changed = self._vote_changed = False
        self._delete_from = None
        self._meta_changed = {}
        return changes

    def _ended(self, failure: Exception | None) -> None:
        """The write has ended. Entries beyond the memory bound are dropped from memory."""
        changes, self._writing = self._writing, None
        if failure is not None:
            self._failure = failure
        elif changes is not None:
            self.saved = changes.number
            self.synced_index = max(self.synced_index, self._landing_index)
            if self._memory_bytes is not None and self._bytes > self._memory_bytes:
                self._shrink_to(self._memory_bytes * 3 // 4)
        self._advance()

    def _shrink_to(self, target_bytes: int) -> None:
        freed = count = 0
        excess = self._bytes - target_bytes
        for entry in self._entries:
            if freed >= excess or entry.index >= self.synced_index:
                break
            freed += _bytes_of(entry)
            count += 1
        self._drop_below(self._start + count)

    def _drop_below(self, index: int) -> None:
        count = max(index - self._start, 0)
        self._bytes -= sum(map(_bytes_of, self._entries[:count]))
        del self._entries[:count]
        self._start = max(self._start, min(index, self.last.index + 1))

    def _stored_entry(self, index: int) -> Entry:
        return self.first if index == self.first.index else self._storage.load(index, index + 1)[0]

    def _not_synced_from(self, index: int) -> None:
        self.synced_index = min(self.synced_index, index - 1)
        self._landing_index = min(self._landing_index, index - 1)


def _bytes_of(entry: Entry) -> int:
    return len(entry.command) + ENTRY_OVERHEAD_BYTES


def _settle(done: asyncio.Future[None], failure: Exception | None) -> None:
    if done.done():
        return
    if failure is None:
        done.set_result(None)
    else:
        done.set_exception(failure)
