"""A checksum after every stored value, over table, key and value: a read returns what was written, or fails (M9, R1).

Pure. XXH3-64, seeded by the CRC of table and key, so a value stored under another key or table is detected as well.
The prefix of the seeds is part of each file format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from operator import itemgetter
from zlib import crc32

from xxhash import xxh3_64_digest

CHECKSUM_BYTES = 8
AT_ONCE_BYTES = 1 << 20
"""Values of more than this in total are verified one by one: verifying them together takes a second copy of all."""
_CONTENT = itemgetter(slice(-CHECKSUM_BYTES))

Row = tuple[bytes, bytes]


class RowChecksums:
    """The checksums of one file format. `tables` are numbered from 0; `refuse` creates the error of a damaged value."""

    __slots__ = ("_refuse", "_seeds")

    def __init__(self, prefix: bytes, tables: Iterable[int], refuse: Callable[[int, bytes], Exception]) -> None:
        self._seeds = [crc32(prefix + bytes([table])) for table in tables]
        self._refuse = refuse

    def seed_of(self, table: int) -> int:
        """The seed of a table. `crc32(key, seed)` is the seed of the checksum."""
        return self._seeds[table]

    def seal(self, table: int, key: bytes, value: bytes) -> bytes:
        """`value` with its checksum, as stored."""
        return value + xxh3_64_digest(value, crc32(key, self._seeds[table]))

    def seal_all(self, table: int, rows: Iterable[Row]) -> list[Row]:
        """As `seal`, for many at once: a flush seals some hundred thousand values a second."""
        seed, crc, digest = self._seeds[table], crc32, xxh3_64_digest
        return [(key, value + digest(value, crc(key, seed))) for key, value in rows]

    def unseal(self, table: int, key: bytes, sealed: bytes) -> bytes:
        """The value without its checksum. Raises the error of `refuse` if the checksum does not match."""
        value = sealed[:-CHECKSUM_BYTES]
        if xxh3_64_digest(value, crc32(key, self._seeds[table])) != sealed[-CHECKSUM_BYTES:]:
            raise self._refuse(table, key)
        return value

    def unseal_all(self, table: int, rows: Sequence[Row]) -> list[Row]:
        """As `unseal`, for many at once."""
        keys, every = [key for key, _ in rows], [sealed for _, sealed in rows]
        seeds = map(crc32, keys, repeat(self._seeds[table]))
        digests = map(xxh3_64_digest, map(_CONTENT, every), seeds)
        if not all(map(bytes.endswith, every, digests)):
            self._unseal_each(table, keys, every)
        return list(zip(keys, map(_CONTENT, every), strict=True))

    def verified(self, table: int, keys: Sequence[bytes], every: Sequence[bytes]) -> bytes:
        """Many sealed values one after the other, each as it is. Raises as `unseal`.

        They are compared at once with the values and their computed checksums. If these are the same bytes, so is each
        value with its checksum: a sealed value too short for a checksum would make the second text the longer one.
        """
        joined = b"".join(every)
        if len(joined) > AT_ONCE_BYTES or joined != self._sealed_again(table, keys, every):
            self._unseal_each(table, keys, every)
        return joined

    def _unseal_each(self, table: int, keys: Sequence[bytes], every: Sequence[bytes]) -> None:
        for key, sealed in zip(keys, every, strict=True):
            self.unseal(table, key, sealed)

    def _sealed_again(self, table: int, keys: Sequence[bytes], every: Sequence[bytes]) -> bytes:
        parts = [b""] * (2 * len(every))
        parts[::2] = values = list(map(_CONTENT, every))
        parts[1::2] = map(xxh3_64_digest, values, map(crc32, keys, repeat(self._seeds[table])))
        return b"".join(parts)
