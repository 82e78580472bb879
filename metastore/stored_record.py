"""A checksum behind every value of the file, over table, key and value: what is read is what was written (M9).

Pure. XXH3-64, seeded by the CRC of table and key: so a value that turns up in another's place is found out as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from zlib import crc32

from xxhash import xxh3_64_digest

from metastore.errors import StoreCorrupt
from metastore.ordered_map import Table

CHECKSUM_BYTES = 8
REMEDY = (
    "This node's copy of the store can't be trusted any more: stop the node, remove its data directory, and start it "
    "with --join, so that it comes back as a new member and gets everything from the others. If no majority of "
    "healthy nodes is left, restore a backup"
)
_SEEDS = [crc32(bytes([table])) for table in Table]


def seal(table: Table, key: bytes, value: bytes) -> bytes:
    """`value` as it is stored."""
    return value + xxh3_64_digest(value, crc32(key, _SEEDS[table]))


def seal_all(table: Table, items: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """As `seal`, for many at once: a flush seals some hundred thousand values a second."""
    seed, crc, digest = _SEEDS[table], crc32, xxh3_64_digest
    return [(key, value + digest(value, crc(key, seed))) for key, value in items]


def unseal_all(table: Table, items: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """As `unseal`, for many at once."""
    seed, crc, digest = _SEEDS[table], crc32, xxh3_64_digest
    opened = [
        (key, value)
        for key, sealed in items
        if digest(value := sealed[:-CHECKSUM_BYTES], crc(key, seed)) == sealed[-CHECKSUM_BYTES:]
    ]
    if len(opened) != len(items):
        for key, sealed in items:
            unseal(table, key, sealed)
    return opened


def unseal(table: Table, key: bytes, sealed: bytes) -> bytes:
    """Raises StoreCorrupt unless it is what was sealed."""
    value = sealed[:-CHECKSUM_BYTES]
    if xxh3_64_digest(value, crc32(key, _SEEDS[table])) != sealed[-CHECKSUM_BYTES:]:
        raise StoreCorrupt(
            f"the value of key {key[:64]!r} in table {Table(table).name} is not what was written (checksum). {REMEDY}"
        )
    return value
