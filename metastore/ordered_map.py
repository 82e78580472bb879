"""The storage interface of the state machine: a few tables of sorted bytes.

`MemoryMap` and `LmdbStore` pass the same contract tests (`tests/contracts/`). A map guarantees:

- `get` and `scan` see every earlier `put` and `delete` of this map at once.
- `scan` runs in byte order of the keys; `end` is exclusive, None means the end of the table; with `reverse` the same
  keys come in the opposite order. The table must not change before the iterator is exhausted, nor must the iterator be
  kept over an `await`: the next step then raises RuntimeError, it never mixes states.
- Keys have 1 to `KEY_BYTES_MAX` bytes; values may be empty. There are no transactions: whole batches are applied in
  one turn of the loop, and the stored state is always one between two turns.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from typing import Protocol

import msgpack

KEY_BYTES_MAX = 8 * 1024
"""Longest key of a table: a user's key (4 KiB at most) with the prefix of its table."""

PEEK_BYTES = 4 << 20
"""A millisecond or two of copying. A value has up to a MiB, and a peek covers thousands of rows."""
PIECE_ROWS_MIN, PIECE_ROWS_MAX = 8, 256

APPLIED_KEY = b"applied"
"""In META: [index, term] of the last applied entry, as written by `encode_applied`. It moves with the data."""


pack_applied: Callable[[tuple[int, int]], bytes] = msgpack.Packer().pack
"""`encode_applied` of a pair, for the code that runs with every batch."""


class Table(enum.IntEnum):
    """The tables. The numbers are part of the disk format: they are only ever extended."""

    META = 0
    REVISION = 1
    KEY = 2
    LEASE = 3
    LEASE_KEY = 4
    CLIENT = 5


Peeked = tuple[bytes, bytes]


class MapOwner(Protocol):
    """The one state machine that writes to a map."""

    def saving(self) -> None:
        """Between two batches, before a flush: the owner writes the state that it keeps only in memory."""
        ...

    def flushed(self, keys: Sequence[bytes], rows: Mapping[bytes, bytes | None]) -> None:
        """After that: the flushed rows of KEY, None for a removed one; `keys` are their keys, in order."""
        ...

    def reload(self) -> None:
        """A received snapshot has become the content: discard everything read from the map before."""
        ...


class NoOwner:
    """For a map without a state machine."""

    def saving(self) -> None:
        """Nothing is kept in memory."""

    def flushed(self, keys: Sequence[bytes], rows: Mapping[bytes, bytes | None]) -> None:
        """Nothing follows the map."""

    def reload(self) -> None:
        """Nothing was read."""


class Owned:
    """A map with at most one owner, which attaches itself on construction."""

    owner: MapOwner = NoOwner()

    def attach(self, owner: MapOwner) -> None:
        """Raises RuntimeError for a second owner: two state machines over one map would corrupt each other."""
        if not isinstance(self.owner, NoOwner):
            raise RuntimeError("the map already has a state machine: open the map again, or use that state machine")
        self.owner = owner


class OrderedMap(Protocol):
    def attach(self, owner: MapOwner) -> None:
        """Once: from now on the owner receives the calls of `MapOwner`."""
        ...

    def get(self, table: Table, key: bytes) -> bytes | None: ...
    def get_many(self, table: Table, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The values of the existing ones of the keys."""
        ...

    def put(self, table: Table, key: bytes, value: bytes) -> None: ...
    def put_many(self, table: Table, items: Mapping[bytes, bytes]) -> None: ...
    def delete(self, table: Table, key: bytes) -> None:
        """Remove the key; no effect if it does not exist."""
        ...

    def scan(
        self, table: Table, start: bytes, end: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """(key, value) with start <= key < end; the whole table is `scan(table, b"", None)`."""
        ...

    def peek(self, table: Table, start: bytes, end: bytes | None, limit: int) -> tuple[list[Peeked], bytes | None]:
        """About `limit` rows of a `scan`, quickly, and where to continue; None: the end.

        Fewer rows if they are large (`in_bounds`). The values are not verified and may have trailing bytes: use them
        for selection only, never serve them.
        """
        ...


def in_bounds(rows: Iterator[tuple[bytes, bytes]], limit: int) -> tuple[list[tuple[bytes, bytes]], bool]:
    """Up to `limit` rows, and not much more than `PEEK_BYTES`; and whether there may be more."""
    found: list[tuple[bytes, bytes]] = []
    size, most = 0, PIECE_ROWS_MIN
    while len(found) < limit and size < PEEK_BYTES:
        wanted = min(most, limit - len(found))
        piece = list(islice(rows, wanted))
        found += piece
        if len(piece) < wanted:
            return found, False
        size += sum(map(len, map(itemgetter(1), piece)))
        most = min(2 * most, PIECE_ROWS_MAX)
    return found, True


def encode_applied(index: int, term: int) -> bytes:
    return pack_applied((index, term))


def decode_applied(value: bytes | None) -> tuple[int, int]:
    """(index, term); (0, 0) for a store without applied entries."""
    if value is None:
        return (0, 0)
    index, term = msgpack.unpackb(value)
    return (index, term)
