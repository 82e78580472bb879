"""A checksum behind every stored value, over table, key and value: what is read is what was written (R1). Pure.

XXH3-64, seeded by the CRC of table and key: a value that turns up in another's place is found out as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

from xxhash import xxh3_64_digest

from vault.errors import RESET, VaultDamaged
from vault.tables import Table

CHECKSUM_BYTES = 8
_SEEDS = [crc32(b"vault" + bytes([table])) for table in Table]


def seed_of(table: Table) -> int:
    """To be gone on with over the key: `crc32(key, seed)` is the seed of the checksum."""
    return _SEEDS[table]


def seal_all(table: Table, rows: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    seed, crc, digest = _SEEDS[table], crc32, xxh3_64_digest
    return [(key, value + digest(value, crc(key, seed))) for key, value in rows]


def unseal_all(table: Table, rows: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """As `unseal`, of many."""
    seed, crc, digest = _SEEDS[table], crc32, xxh3_64_digest
    opened = {}
    for key, sealed in rows:
        value = sealed[:-CHECKSUM_BYTES]
        if digest(value, crc(key, seed)) != sealed[-CHECKSUM_BYTES:]:
            raise _damaged(table, key)
        opened[key] = value
    return opened


def unseal(table: Table, key: bytes, sealed: bytes) -> bytes:
    """Raises VaultDamaged unless it is what was sealed."""
    value = sealed[:-CHECKSUM_BYTES]
    if xxh3_64_digest(value, crc32(key, _SEEDS[table])) != sealed[-CHECKSUM_BYTES:]:
        raise _damaged(table, key)
    return value


def _damaged(table: Table, key: bytes) -> VaultDamaged:
    return VaultDamaged(
        f"the vault's value of {key[:64]!r} in table {Table(table).name} is not what was written: {RESET}"
    )
