"""The events of the retained revisions: written (plain puts: `plain_put_batch.py`), and read by watches, reads at older
revisions and digests.

Every event contains the row that it replaced. Thus the version of a key at revision r is in KEY, or is the row replaced
by the oldest event of the key after r; since r is not below MM, no compaction has removed that event. The search goes
back from row to row, with longer jumps: each row points to a milestone, one of every 64 rows of its key, and a
milestone to the previous one. For n events since r that is at most n/64 + 64 steps.

REVISION holds them in blocks of successive revisions, some hundred plain puts or a part of one transaction each:

    header    checksum of all that follows; pointer of the first event, last revision, number of events, of deletes
              among them; wall and lease clock of their batch; garbage and chain digest before the first of them
    offsets   where each event ends, counted from the end of the offsets
    events    row, and the row that it replaced if there was one (`record.py`)

Either each event is a revision of its own, or all are of one revision: so the number of an event in its block is a
subtraction. The key of a block is the pointer of its last event: the block of an event is the first one whose key is
not below its pointer.

A block is created once and never changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby, pairwise
from struct import Struct, unpack_from

from xxhash import xxh3_64_intdigest

from palisade.base.digest import DIGEST_BYTES, leaf_of, next_chain
from palisade.base.invariant import InvariantViolated
from palisade.metastore.errors import StoreCorrupt
from palisade.metastore.ordered_map import OrderedMap, Table
from palisade.metastore.record import KEY_BYTES_AT, LINK_BYTES, POINTER, REVISION, ROW, row_size, unpack_row
from palisade.metastore.state import FIRST_REVISION, StoreState

SUB_MAX = (1 << 32) - 1
Event = tuple[bytes, bytes]
DatedChange = tuple[int, int, int, bytes, bytes, bytes]
"""Wall clock in ms, revision, number of the event within it, key, content of the row and of the row it replaced."""
_VERSION = slice(LINK_BYTES + 16, LINK_BYTES + 24)
_NO_VERSION = bytes(8)


HEADER = Struct(">QQIQIIQQQ16s")
CHECKSUM = Struct(">Q")
BLOCK_BYTES = 16 * 1024
"""A block exceeds this size by at most one event; reading one event reads its whole block."""


def pack_block(
    first: tuple[int, int],
    last_revision: int,
    events: Sequence[bytes],
    deletes: int,
    times: tuple[int, int],
    garbage: int,
    chain: int,
) -> bytes:
    """`first`: the pointer of the first event; `times`: wall and lease clock; `garbage` and `chain` before it."""
    offsets = b"".join(map(_OFFSET.pack, accumulate(map(len, events))))
    count = len(events)
    header = HEADER.pack(0, *first, last_revision, count, deletes, *times, garbage, chain.to_bytes(DIGEST_BYTES, "big"))
    body = b"".join((header[CHECKSUM.size :], offsets, *events))
    return CHECKSUM.pack(xxh3_64_intdigest(body)) + body


_OFFSET = Struct(">I")
_SIZES = Struct(">HI")


class HistoryBlock:
    """Read access to a packed block."""

    __slots__ = (
        "chain_before", "clock_ms", "count", "deletes", "first_revision", "first_sub", "garbage_before",
        "last_revision", "packed", "wall_ms",
    )  # fmt: skip

    def __init__(self, packed: bytes) -> None:
        self.packed = packed
        (
            _, self.first_revision, self.first_sub, self.last_revision, self.count, self.deletes,
            self.wall_ms, self.clock_ms, self.garbage_before, chain,
        ) = HEADER.unpack_from(packed)  # fmt: skip
        self.chain_before = int.from_bytes(chain, "big")

    def is_whole(self) -> bool:
        """Whether it is what was written."""
        packed = self.packed
        return len(packed) >= HEADER.size and CHECKSUM.unpack_from(packed)[0] == xxh3_64_intdigest(
            packed[CHECKSUM.size :]
        )

    def number_of(self, revision: int, sub: int) -> int | None:
        """The number of an event in this block; None if it is not in it."""
        if self.first_revision == self.last_revision:
            number = sub - self.first_sub if revision == self.first_revision else -1
        else:
            number = revision - self.first_revision if sub == 0 else -1
        return number if 0 <= number < self.count else None

    def event(self, number: int) -> tuple[bytes, bytes]:
        """(row, the row that it replaced; empty for a new key)."""
        start, stop = self._bounds(number)
        middle = start + row_size(self.packed, start)
        return self.packed[start:middle], self.packed[middle:stop]

    def events(self, first: int = 0) -> Iterator[tuple[bytes, bytes]]:
        return (self.event(number) for number in range(first, self.count))

    def contents(self, first: int = 0) -> list[bytes]:
        """The hashed content of the events from `first` on: row by row without its link, in one loop."""
        packed, count, unpack = self.packed, self.count, _SIZES.unpack_from
        base = HEADER.size + count * _OFFSET.size
        found = []
        for start in (0, *unpack_from(f">{count}I", packed, HEADER.size))[first:count]:
            at = base + start
            key_bytes, value_bytes = unpack(packed, at + KEY_BYTES_AT)
            found.append(packed[at + LINK_BYTES : at + ROW.size + key_bytes + value_bytes])
        return found

    def changes(self, first: int = 0) -> list[tuple[bytes, bytes, bytes]]:
        """(key, content of the row, content of the replaced row) of the events from `first` on; contents are without
        their links."""
        packed, count, unpack = self.packed, self.count, _SIZES.unpack_from
        base = HEADER.size + count * _OFFSET.size
        found = []
        for start, stop in pairwise((0, *unpack_from(f">{count}I", packed, HEADER.size))[first:]):
            at = base + start
            key_bytes, value_bytes = unpack(packed, at + KEY_BYTES_AT)
            value_at = at + ROW.size + key_bytes
            middle = value_at + value_bytes
            replaced = packed[middle + LINK_BYTES : base + stop]
            found.append((packed[at + ROW.size : value_at], packed[at + LINK_BYTES : middle], replaced))
        return found

    def _bounds(self, number: int) -> tuple[int, int]:
        base = HEADER.size + self.count * _OFFSET.size
        at = HEADER.size + number * _OFFSET.size
        start = _OFFSET.unpack_from(self.packed, at - _OFFSET.size)[0] if number else 0
        return base + start, base + int(_OFFSET.unpack_from(self.packed, at)[0])

    def until(self, revision: int) -> tuple[int, int]:
        """(chain digest, garbage) after the last event of this block that is not newer than `revision`."""
        chain, garbage = self.chain_before, self.garbage_before
        for row, replaced in self.events():
            if REVISION.unpack_from(row, LINK_BYTES)[0] > revision:
                break
            chain = next_chain(chain, leaf_of(row[LINK_BYTES:]))
            garbage += garbage_of(replaced)
        return chain, garbage


def garbage_of(replaced: bytes) -> int:
    """The cost of the version that an event has replaced, if any."""
    return unpack_row(replaced).cost if replaced else 0


def open_block(packed: bytes) -> HistoryBlock:
    """Raises StoreCorrupt for a malformed block."""
    if len(packed) < HEADER.size:
        raise StoreCorrupt("a block of events is torn: restore this node from another replica")
    return HistoryBlock(packed)


class History:
    """The events of one revision are added one by one and become readable at once; `close` stores them."""

    __slots__ = ("_last", "_open", "_state", "_tables", "blocks_read")

    def __init__(self, tables: OrderedMap, state: StoreState) -> None:
        self._tables = tables
        self._state = state
        self._open: list[Event] = []
        self._last: HistoryBlock | None = None
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
        if len(self._open) > SUB_MAX:
            raise InvariantViolated(f"revision {self._state.revision + 1} has more than {SUB_MAX} events")
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

    def _block_of(self, revision: int, sub: int) -> HistoryBlock:
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
