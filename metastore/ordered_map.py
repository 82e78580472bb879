"""What the state machine of the meta storage is built on: a few tables of sorted bytes.

`MemoryMap` and `LmdbStore` pass the same contract tests (`tests/contracts/`). A map promises:

- `get` and `scan` see every earlier `put` and `delete` of this map, at once.
- `scan` runs in the order of the bytes of the keys; `end` is exclusive, None means the end of the table; with
  `reverse` the same keys come in the opposite order. The table must not change before the iterator is
  done with, and it is not kept over an `await`: the next step then raises RuntimeError, it never mixes states.
- Keys have 1 to `KEY_BYTES_MAX` bytes; values may be empty. There is no transaction here: whole batches are
  applied in one turn of the loop, and what is stored on disk is always the state between two turns.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from typing import Protocol

import msgpack

KEY_BYTES_MAX = 8 * 1024
"""Longest key of a table: a user's key (4 KiB at most) with what its table adds to it."""

PEEK_BYTES = 4 << 20
"""A millisecond or two of copying. A value has up to a MiB, and a peek is asked for thousands of rows."""
PIECE_ROWS_MIN, PIECE_ROWS_MAX = 8, 256

APPLIED_KEY = b"applied"
"""In META: [index, term] of the last applied entry, as `encode_applied` writes it. It moves with the data."""


pack_applied: Callable[[tuple[int, int]], bytes] = msgpack.Packer().pack
"""`encode_applied` of a pair, for what runs with every batch."""


class Table(enum.IntEnum):
    """The tables. The numbers are part of the disk format: only ever extended."""

    META = 0
    REVISION = 1
    KEY = 2
    LEASE = 3
    LEASE_KEY = 4
    CLIENT = 5


Peeked = tuple[bytes, bytes]


class MapOwner(Protocol):
    """Of a map: the one state machine that writes to it."""

    def saving(self) -> None:
        """Between two batches, before what was written is saved: what the owner only keeps in memory goes in now."""
        ...

    def flushed(self, keys: Sequence[bytes], rows: Mapping[bytes, bytes | None]) -> None:
        """After that: the rows of KEY that were saved, None for a removed one; `keys` are theirs, in order."""
        ...

    def reload(self) -> None:
        """A received snapshot has become the content: whatever was read from the map before is of another state."""
        ...


class NoOwner:
    """Of a map that is used as it is."""

    def saving(self) -> None:
        """Nothing is kept in memory."""

    def flushed(self, keys: Sequence[bytes], rows: Mapping[bytes, bytes | None]) -> None:
        """Nothing follows the map."""

    def reload(self) -> None:
        """Nothing was read."""


class Owned:
    """A map with at most one owner, which attaches itself when it is made."""

    owner: MapOwner = NoOwner()

    def attach(self, owner: MapOwner) -> None:
        """Raises RuntimeError for a second one: two state machines over one map would both be wrong."""
        if not isinstance(self.owner, NoOwner):
            raise RuntimeError("another state machine is over this map already: open the map again, or use that one")
        self.owner = owner


class OrderedMap(Protocol):
    def attach(self, owner: MapOwner) -> None:
        """Once: from now on the owner is called as `MapOwner` says."""
        ...

    def get(self, table: Table, key: bytes) -> bytes | None: ...
    def get_many(self, table: Table, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The values of those keys that exist."""
        ...

    def put(self, table: Table, key: bytes, value: bytes) -> None: ...
    def put_many(self, table: Table, items: Mapping[bytes, bytes]) -> None: ...
    def delete(self, table: Table, key: bytes) -> None:
        """Remove the key; nothing happens where it does not exist."""
        ...

    def scan(
        self, table: Table, start: bytes, end: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """(key, value) with start <= key < end; the whole table is `scan(table, b"", None)`."""
        ...

    def peek(self, table: Table, start: bytes, end: bytes | None, limit: int) -> tuple[list[Peeked], bytes | None]:
        """About `limit` rows as `scan` gives them, quickly, and where to go on; None: that was the end.

        Fewer rows where they are large (`in_bounds`). The values are not verified, and something may be behind them: to
        choose by, never to be served.
        """
        ...


def in_bounds(rows: Iterator[tuple[bytes, bytes]], limit: int) -> tuple[list[tuple[bytes, bytes]], bool]:
    """Up to `limit` rows, and not much more than `PEEK_BYTES` of them; whether there may be more."""
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
    """(index, term); (0, 0) for a store to which nothing was ever applied."""
    if value is None:
        return (0, 0)
    index, term = msgpack.unpackb(value)
    return (index, term)
