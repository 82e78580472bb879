"""A snapshot as a stream of pieces: rows in the order of the file, and a trailer with their totals.

    piece    crc32 (4) + msgpack [number, runs, trailer]
    run      [table, [key, value, key, value, ...]]        in the order of the stored keys
    trailer  None, or in the last piece [format, rows, chain, index, term]; the last piece holds no rows

The chain is a hash over all pieces, each on top of the previous one: it can be continued after a restart, and a
missing, repeated, altered or foreign piece breaks it. Pure.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgpack

from palisade.base.snapshots import SnapshotInvalid, SnapshotMeta
from palisade.metastore.ordered_map import KEY_BYTES_MAX, Table

FORMAT_VERSION = 1
PIECE_BYTES = 512 * 1024
"""Takes about 4 ms to read from the file, or to write to one."""
CHAIN_BYTES = 16
_CRC_BYTES = 4
_ROW_OVERHEAD_BYTES = 160
"""The time cost of a row besides its bytes, in bytes: small rows make a piece smaller, not slower."""

Row = tuple[bytes, bytes, bytes]
"""Stored key, key, value."""
Run = tuple[int, list[bytes]]
"""Table, then keys and values alternating."""


@dataclass(frozen=True, slots=True)
class SnapshotPosition:
    """Where a piece begins: the table and the stored key, and the totals of the previous pieces."""

    table: int
    start: bytes
    rows: int
    chain: bytes


def next_chain(chain: bytes, piece: bytes) -> bytes:
    return blake2b(chain + piece, digest_size=CHAIN_BYTES).digest()


def seal_piece(content: list[Any]) -> bytes:
    packed: bytes = msgpack.packb(content)
    return zlib.crc32(packed).to_bytes(_CRC_BYTES, "big") + packed


def open_piece(piece: bytes) -> list[Any]:
    """[number, runs, trailer]. Raises SnapshotInvalid."""
    packed = piece[_CRC_BYTES:]
    if zlib.crc32(packed).to_bytes(_CRC_BYTES, "big") != piece[:_CRC_BYTES]:
        raise SnapshotInvalid("a piece of the snapshot was altered on the way (checksum): it is requested again")
    try:
        number, runs, trailer = msgpack.unpackb(packed)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise SnapshotInvalid(f"a piece of the snapshot can't be decoded: {error}") from error
    return [number, runs, trailer]


class StoreSnapshotReader:
    """Pieces in order; earlier pieces can be read again. `rows_from(table, stored key)` reads the state.

    `check_alive` raises SnapshotGone if the state can no longer be read.
    """

    def __init__(
        self,
        meta: SnapshotMeta,
        rows_from: Callable[[Table, bytes], Iterator[Row]],
        check_alive: Callable[[], None],
        on_close: Callable[[], None],
    ) -> None:
        self.meta = meta
        self._rows_from = rows_from
        self._check_alive = check_alive
        self._on_close: Callable[[], None] | None = on_close
        self._positions = [SnapshotPosition(0, b"", 0, bytes(CHAIN_BYTES))]
        self._last: tuple[int, bytes] | None = None
        self._rows: Iterator[Row] | None = None
        self._rows_at: SnapshotPosition | None = None

    def chunk(self, number: int) -> bytes | None:
        """The piece with this number; None past the end. Raises SnapshotGone."""
        self._check_alive()
        if self._last is not None and self._last[0] == number:
            return self._last[1]
        while len(self._positions) <= number:
            if self._make(len(self._positions) - 1) is None:
                return None
        return self._make(number)

    def rows(self, table: Table) -> Iterator[Row]:
        """A whole table in the snapshot. Raises SnapshotGone."""
        self._check_alive()
        return self._rows_from(table, b"")

    def close(self) -> None:
        self._rows = None
        if self._on_close is not None:
            self._on_close()
            self._on_close = None

    def _make(self, number: int) -> bytes | None:
        position = self._positions[number]
        if position.table > len(Table):
            return None
        if position.table == len(Table):
            trailer = [FORMAT_VERSION, position.rows, position.chain, self.meta.index, self.meta.term]
            piece = seal_piece([number, [], trailer])
            after = SnapshotPosition(len(Table) + 1, b"", position.rows, b"")
        else:
            runs, after_table, after_start, rows = self._read_runs(position)
            piece = seal_piece([number, runs, None])
            after = SnapshotPosition(after_table, after_start, position.rows + rows, next_chain(position.chain, piece))
        if number + 1 == len(self._positions):
            self._positions.append(after)
        self._rows_at = after
        self._last = (number, piece)
        return piece

    def _read_runs(self, position: SnapshotPosition) -> tuple[list[Run], int, bytes, int]:
        """(runs, table and stored key of the next row, number of rows)."""
        runs: list[Run] = []
        size = rows = 0
        if self._rows_at != position:
            self._rows = None
        for table in Table:
            if table < position.table:
                continue
            items = self._rows or self._rows_from(table, position.start if table == position.table else b"")
            self._rows = None
            flat: list[bytes] = []
            runs.append((int(table), flat))
            for stored, key, value in items:
                flat += (key, value)
                rows += 1
                size += len(key) + len(value) + _ROW_OVERHEAD_BYTES
                if size >= PIECE_BYTES:
                    self._rows = items
                    return runs, int(table), stored + b"\x00", rows
        return runs, len(Table), b"", rows


class Assembly:
    """A receiver's progress in the stream; `state` can be stored and continued later."""

    def __init__(self, meta: SnapshotMeta, state: list[Any] | None = None) -> None:
        self._meta = meta
        self.next_chunk, self.rows, self._chain, self._trailer = 0, 0, bytes(CHAIN_BYTES), None
        if state is not None and state[0] == meta.id:
            self.next_chunk, self.rows, self._chain, self._trailer = state[1:]

    @property
    def state(self) -> list[Any]:
        return [self._meta.id, self.next_chunk, self.rows, self._chain, self._trailer]

    def accept(self, number: int, piece: bytes) -> list[Run]:
        """The rows of the next piece; none for an earlier piece. Raises SnapshotInvalid, with the state unchanged."""
        if number < self.next_chunk:
            return []
        own_number, runs, trailer = open_piece(piece)
        if number > self.next_chunk or own_number != number or self._trailer is not None:
            raise SnapshotInvalid(
                f"piece {own_number} of the snapshot was sent as {number}; expected {self.next_chunk}"
            )
        rows = check_runs(runs)
        self.next_chunk += 1
        if trailer is None:
            self.rows += rows
            self._chain = next_chain(self._chain, piece)
        else:
            self._trailer = trailer
        return [(table, flat) for table, flat in runs]

    def check_whole(self) -> None:
        """Raises SnapshotInvalid unless the pieces are exactly the announced snapshot."""
        expected = [FORMAT_VERSION, self.rows, self._chain, self._meta.index, self._meta.term]
        if self._trailer != expected:
            raise SnapshotInvalid(
                f"the snapshot {self._meta.id} is not complete after {self.next_chunk} pieces with {self.rows} rows, "
                "or of another format: it is requested again from the beginning"
            )


def check_runs(runs: Any) -> int:
    """The number of rows. Raises SnapshotInvalid for malformed runs."""
    try:
        rows = 0
        for table, flat in runs:
            keys = flat[::2]
            sound = (
                0 <= table < len(Table)
                and len(flat) == 2 * len(keys)
                and set(map(type, flat)) <= {bytes}
                and (not keys or (min(map(len, keys)) > 0 and max(map(len, keys)) <= KEY_BYTES_MAX))
            )
            if not sound:
                raise SnapshotInvalid(f"a piece of the snapshot has malformed rows of table {table}")
            rows += len(keys)
        return rows
    except (TypeError, ValueError) as error:
        raise SnapshotInvalid(f"a piece of the snapshot can't be decoded: {error}") from error
