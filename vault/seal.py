"""A checksum behind every stored value, over table, key and value: what is read is what was written (R1). Pure.

The key belongs to it, so that a value which turns up in another's place is found out as well.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from vault.errors import RESET, VaultDamaged
from vault.tables import Table

CRC_BYTES = 4
_SEEDS = [zlib.crc32(b"vault" + bytes([table])) for table in Table]


def seal_all(table: Table, rows: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    seed, crc32 = _SEEDS[table], zlib.crc32
    return [(key, value + crc32(value, crc32(key, seed)).to_bytes(CRC_BYTES, "big")) for key, value in rows]


def unseal_all(table: Table, rows: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """As `unseal`, of many."""
    seed, crc32 = _SEEDS[table], zlib.crc32
    opened = {}
    for key, sealed in rows:
        value = sealed[:-CRC_BYTES]
        if crc32(value, crc32(key, seed)).to_bytes(CRC_BYTES, "big") != sealed[-CRC_BYTES:]:
            raise _damaged(table, key)
        opened[key] = value
    return opened


def unseal(table: Table, key: bytes, sealed: bytes) -> bytes:
    """Raises VaultDamaged unless it is what was sealed."""
    value = sealed[:-CRC_BYTES]
    if zlib.crc32(value, zlib.crc32(key, _SEEDS[table])).to_bytes(CRC_BYTES, "big") != sealed[-CRC_BYTES:]:
        raise _damaged(table, key)
    return value


def _damaged(table: Table, key: bytes) -> VaultDamaged:
    return VaultDamaged(
        f"the vault's value of {key[:64]!r} in table {Table(table).name} is not what was written: {RESET}"
    )
