"""Flips bits in a file of LMDB: anywhere in written pages, many of which are never read again; or in a current value,
so that a complete read of the file finds it."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import lmdb

VALUE_BYTES_MIN = 24
"""With its checksum, a value of this size occurs once in its file."""
SECTOR_BYTES = 512
TABLES_MAX = 32


def flip_bits(chance: Random, folder: Path, *, sure: bool) -> int:
    """Flips some bits; returns how many. `sure`: the first of them in a value, in every place of the file that has
    it."""
    (path,) = folder.glob("**/data.mdb")
    value = chance.choice(values_in(path)) if sure else b""
    content, bits = bytearray(path.read_bytes()), chance.choice((1, 1, 8, 64))
    written = [at for at in range(0, len(content), SECTOR_BYTES) if any(content[at : at + SECTOR_BYTES])]
    if sure:
        place, bit = chance.randrange(len(value)), 1 << chance.randrange(8)
        for found in re.finditer(re.escape(value), bytes(content)):
            content[found.start() + place] ^= bit
    for _ in range(bits - sure):
        at = chance.choice(written) + chance.randrange(SECTOR_BYTES)
        content[min(at, len(content) - 1)] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
    return bits


def values_in(file: Path) -> list[bytes]:
    """Values of all tables. Each is stored contiguously."""
    with (
        lmdb.open(str(file), subdir=False, readonly=True, lock=False, max_dbs=TABLES_MAX) as environment,
        environment.begin() as reading,
    ):
        tables = [environment.open_db(bytes(name), reading, create=False) for name, _ in reading.cursor()]
        return [value for each in tables for _, value in reading.cursor(each) if len(value) >= VALUE_BYTES_MIN]
