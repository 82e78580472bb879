"""The events of the retained revisions: written (plain puts: `plain_put_batch.py`), and read by watches, reads at older
revisions and digests.

Every event contains the row that it replaced. So the version of a key at revision r is in KEY, or is the row replaced
by the oldest event of the key after r; since r is not below MM, no compaction has removed that event. The search goes
back from row to row, with longer jumps: each row points to a milestone, one of every 64 rows of its key, and a
milestone to the previous one. For n events since r that is at most n/64 + 64 steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from palisade.base.digest import leaf_of, next_chain
from palisade.base.invariant import check
from palisade.metastore.block import BLOCK_BYTES, Block, garbage_of, open_block, pack_block
from palisade.metastore.errors import StoreCorrupt
from palisade.metastore.ordered_map import OrderedMap, Table
from palisade.metastore.record import LINK_BYTES, POINTER, REVISION, ROW
from palisade.metastore.state import FIRST_REVISION, StoreState

SUB_MAX = (1 << 32) - 1
Event = tuple[bytes, bytes]
DatedChange = tuple[int, int, int, bytes, bytes, bytes]
"""Wall clock in ms, revision, number of the event within it, key, content of the row and of the row it replaced."""
_VERSION = slice(LINK_BYTES + 16, LINK_BYTES + 24)
_NO_VERSION = bytes(8)


class History:
    """The events of one revision are added one by one and become readable at once; `close` stores them."""

    __slots__ = ("_last", "_open", "_state", "_tables", "blocks_read")

    def __init__(self, tables: OrderedMap, state: StoreState) -> None:
        self._tables = tables
        self._state = state
        self._open: list[Event] = []
        self._last: Block | None = None
        self.blocks_read = 0
        """Blocks read so far to find events: the additional cost of reads at older revisions, about 12 us each."""

    def reload(self) -> None:
        """The tables were replaced."""
        self._last = None

    # Writing

    @property
    def next_sub(self) -> int:
        """The number of events so far of the revision that is being written."""
        return len(self._open)

    def add(self, row: bytes, replaced: bytes) -> None:
        check(len(self._open) <= SUB_MAX, f"revision {self._state.revision + 1} has more than {SUB_MAX} events")
        self._open.append((row, replaced))

    def close(self) -> None:
        """Complete the revision, if it has begun: `state` moves to it."""
        if not self._open:
            return
        state = self._state
        revision, sub = state.revision + 1, 0
        while sub < len(self._open):
            stop = self._fitting(sub)
            self._store(revision, sub, self._open[sub:stop])
            sub = stop
        state.revision = revision
        self._open.clear()

    def _fitting(self, first: int) -> int:
        """The index after the last event, from `first` on, that fits into one block."""
        size, stop = 0, first
        while stop < len(self._open) and size < BLOCK_BYTES:
            size += sum(map(len, self._open[stop]))
            stop += 1
        return stop

    def _store(self, revision: int, sub: int, events: list[Event]) -> None:
        state = self._state
        deletes = sum(1 for row, _ in events if is_tombstone(row))
        joined, times = [row + old for row, old in events], (state.wall_ms, state.clock_ms)
        packed = pack_block((revision, sub), revision, joined, deletes, times, state.garbage, state.chain)
        self._tables.put(Table.REVISION, POINTER.pack(revision, sub + len(events) - 1), packed)
        for row, replaced in events:
            state.chain = next_chain(state.chain, leaf_of(row[LINK_BYTES:]))
            state.garbage += garbage_of(replaced)

    # Reading

    def event(self, revision: int, sub: int) -> Event:
        """(row, the row that it replaced). The event must exist; raises StoreCorrupt otherwise."""
        if revision > self._state.revision:
            return self._open[sub]
        block = self._block_of(revision, sub)
        return block.event(block.number_of(revision, sub) or 0)

    def _block_of(self, revision: int, sub: int) -> Block:
        """Caches the last block, because neighbouring events are read in succession. Raises StoreCorrupt."""
        if self._last is not None and self._last.number_of(revision, sub) is not None:
            return self._last
        for _, packed in self._tables.scan(Table.REVISION, POINTER.pack(revision, sub), None):
            block = open_block(packed)
            if block.number_of(revision, sub) is None:
                break
            self._last = block
            self.blocks_read += 1
            return block
        raise missing(revision, sub)

    def version_at(self, row: bytes, revision: int) -> bytes:
        """The row of the same key as of `revision`, which is not below MM; empty if the key did not exist."""
        while row:
            sub, jump, jump_sub, _, mod, *_ = ROW.unpack_from(row)
            if mod <= revision:
                return row
            row = self.event(jump, jump_sub)[0] if jump > revision else self.event(mod, sub)[1]
        return row

    def revisions(self, first: int, last: int) -> Iterator[tuple[int, list[Event]]]:
        """(revision, its events in order) from `first` to `last`, all retained. Nothing may be written meanwhile."""
        expected = max(first, FIRST_REVISION + 1)
        if expected > last:
            return
        for revision, events in groupby(self._events_from(expected), key=lambda event: mod_of(event[0])):
            if revision != expected:
                break
            yield revision, list(events)
            if revision == last:
                return
            expected += 1
        raise missing(expected, 0)

    def contents(self, first: int, last: int) -> Iterator[tuple[int, list[bytes]]]:
        """As `revisions`, faster, with only the hashed content of each event: block by block.

        A block has either a part of one revision, or events that are one revision each.
        """
        revision, found = max(first, FIRST_REVISION + 1), list[bytes]()
        if revision > last:
            return
        for _, packed in self._tables.scan(Table.REVISION, POINTER.pack(revision, 0), None):
            block = open_block(packed)
            if found and block.first_revision != revision:
                yield revision, found
                revision, found = revision + 1, []
            number = block.number_of(revision, len(found))
            if number is None or revision > last:
                break
            if block.first_revision == block.last_revision:
                found += block.contents(number)
                continue
            for content in block.contents(number)[: last - revision + 1]:
                yield revision, [content]
                revision += 1
        else:
            if found:
                yield revision, found
                revision, found = revision + 1, []
        if revision <= last:
            raise missing(revision, len(found))

    def dated(self, revision: int, sub: int, last: int) -> Iterator[DatedChange]:
        """Every event from `revision`.`sub` to the end of `last`, all retained. Nothing may be written meanwhile."""
        revision = max(revision, FIRST_REVISION + 1)
        if revision > last:
            return
        for _, packed in self._tables.scan(Table.REVISION, POINTER.pack(revision, sub), None):
            block = open_block(packed)
            number = block.number_of(revision, sub)
            if number is None and sub:
                revision, sub = revision + 1, 0
                number = block.number_of(revision, sub)
            if number is None or revision > last:
                break
            wall_ms, one_revision = block.wall_ms, block.first_revision == block.last_revision
            for key, body, replaced in block.changes(number):
                if revision > last:
                    return
                yield wall_ms, revision, sub, key, body, replaced
                if one_revision:
                    sub += 1
                else:
                    revision += 1
        if revision < last or (revision == last and not sub):
            raise missing(revision, sub)

    def _events_from(self, revision: int) -> Iterator[Event]:
        for _, packed in self._tables.scan(Table.REVISION, POINTER.pack(revision, 0), None):
            block = open_block(packed)
            yield from block.events(block.number_of(revision, 0) or 0)

    def chain_at(self, revision: int) -> int | None:
        """The chain digest after a retained revision; None for the first one, which has no events, and for others."""
        return self._until(revision)[0] if self._is_retained(revision) else None

    def garbage_at(self, revision: int) -> int:
        """The cost of all versions superseded up to and including a retained revision."""
        return self._until(revision)[1] if self._is_retained(revision) else 0

    def clock_ms_at(self, revision: int) -> int | None:
        """The replicated clock when a retained revision was written; None for others."""
        return self._block_of(revision, 0).clock_ms if self._is_retained(revision) else None

    def first_since(self, wall_ms: int) -> int:
        """The first retained revision whose wall clock is not below `wall_ms`; the next revision if there is none.

        The wall clock of revisions never goes back (`state.py`), so this reads one block for each halving.
        """
        low, high = max(FIRST_REVISION + 1, self._state.compacted), self._state.revision + 1
        while low < high:
            middle = (low + high) // 2
            if self._block_of(middle, 0).wall_ms >= wall_ms:
                high = middle
            else:
                low = middle + 1
        return low

    def _is_retained(self, revision: int) -> bool:
        return max(FIRST_REVISION + 1, self._state.compacted) <= revision <= self._state.revision

    def _until(self, revision: int) -> tuple[int, int]:
        state = self._state
        return (
            (state.chain, state.garbage)
            if revision == state.revision
            else self._block_of(revision + 1, 0).until(revision)
        )


def missing(revision: int, sub: int) -> StoreCorrupt:
    return StoreCorrupt(f"event {revision}.{sub} is missing in the store: restore this node from another replica")


def mod_of(row: bytes) -> int:
    found: int = REVISION.unpack_from(row, LINK_BYTES)[0]
    return found


def is_tombstone(row: bytes) -> bool:
    return row[_VERSION] == _NO_VERSION
