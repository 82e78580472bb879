"""The events of successive revisions as one entry of REVISION: some hundred plain puts, or a part of one transaction.

    header    checksum of all that follows; pointer of the first event, last revision, number of events, of deletes
              among them; wall and lease clock of their batch; garbage and chain digest before the first of them
    offsets   where each event ends, counted from the end of the offsets
    events    row, and the row that it replaced if there was one (`record.py`)

Either each event is a revision of its own, or all are of one revision: so the number of an event in its block is a
subtraction. The key of a block is the pointer of its last event: the block of an event is the first one whose key is
not below its pointer.

Pure. A block is created once and never changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from struct import Struct, unpack_from

from xxhash import xxh3_64_intdigest

from palisade.base.digest import DIGEST_BYTES, leaf_of, next_chain
from palisade.metastore.errors import StoreCorrupt
from palisade.metastore.record import KEY_BYTES_AT, LINK_BYTES, REVISION, ROW, row_size, unpack_row

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


class Block:
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


def open_block(packed: bytes) -> Block:
    """Raises StoreCorrupt for a malformed block."""
    if len(packed) < HEADER.size:
        raise StoreCorrupt("a block of events is torn: restore this node from another replica")
    return Block(packed)
