"""A damaged record of a disk: a bit has flipped, or only its first part was written.

The doubles of journal, store and vault keep values and no bytes. Thus the product's own code encodes a record into the
bytes of the real file, those are damaged, and the product's own code reads them at the next start. What it refuses is
refused as by the real file; what it accepts is what the node starts with, and the checkers must detect it. Pages of
LMDB and other parts of a file are not simulated: `tests/fuzz` damages files.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from palisade.metastore.errors import StoreCorrupt
from palisade.metastore.ordered_map import Table as StoreTable
from palisade.metastore.record_check import CHECKSUMS as STORE_CHECKSUMS
from palisade.raftgroup import lmdb_journal
from palisade.raftgroup.errors import JournalCorrupt
from palisade.raftgroup.ports import Entry
from palisade.vault.errors import VaultDamaged
from palisade.vault.record_check import CHECKSUMS as VAULT_CHECKSUMS
from palisade.vault.tables import VaultTable as VaultTable
from tests.sim.disk import Disk


class Part(enum.Enum):
    JOURNAL = "journal"
    STORE = "store"
    VAULT = "vault"


@dataclass(frozen=True, slots=True)
class Damage:
    """`read` raises the product's error, else the damaged record replaces the written one."""

    part: Part
    what: str
    read: Callable[[], None]


def is_damage(error: BaseException | None) -> bool:
    """Whether an error, or one of its causes, reports damaged bytes on a disk."""
    while error is not None:
        if isinstance(error, JournalCorrupt | StoreCorrupt | VaultDamaged):
            return True
        error = error.__cause__
    return False


def damaged(disk: Disk, part: Part, chance: Random) -> Damage | None:
    """None if nothing is written yet. The newest records are preferred: a start reads those for sure."""
    make = {Part.JOURNAL: _in_journal, Part.STORE: _in_store, Part.VAULT: _in_vault}[part]
    return make(disk, chance)


def spoiled(raw: bytes, chance: Random) -> tuple[bytes, str]:
    """A torn write: from some place on, the bytes are of a block that was never written."""
    if chance.random() < 0.4 and any(raw[4:]):
        place = chance.randrange(len(raw))
        torn = raw[:place] + bytes(len(raw) - place)
        if torn != raw:
            return torn, "torn"
    bit = chance.randrange(8 * len(raw))
    flipped = bytearray(raw)
    flipped[bit // 8] ^= 1 << bit % 8
    return bytes(flipped), "flipped"


def _in_journal(disk: Disk, chance: Random) -> Damage | None:
    journal = disk.journal
    entries = list(journal.disk.stored.entries)
    if not entries:
        return None
    place = len(entries) - 1 - int(min(40, len(entries)) * chance.random())
    index = entries[place].index
    raw, how = spoiled(lmdb_journal.entry_value(entries[place]), chance)

    def read() -> None:
        found: Entry = lmdb_journal.entry_from(index, raw)
        entries[place] = found
        journal.disk.stored = replace(journal.disk.stored, entries=entries)
        journal.crash()

    return Damage(Part.JOURNAL, f"entry {index} {how}", read)


def _in_store(disk: Disk, chance: Random) -> Damage | None:
    rows = [(table, key) for table in StoreTable for key in sorted(disk.stored[table])]
    if not rows:
        return None
    table, key = chance.choice(rows)
    raw, how = spoiled(STORE_CHECKSUMS.seal(table, key, disk.stored[table][key]), chance)

    def read() -> None:
        value = STORE_CHECKSUMS.unseal(table, key, raw)
        disk.stored[table] = {**disk.stored[table], key: value}

    return Damage(Part.STORE, f"{table.name} {key!r} {how}", read)


def _in_vault(disk: Disk, chance: Random) -> Damage | None:
    tables = disk.backend._tables
    rows = [(table, key) for table in VaultTable for key in sorted(tables[table])]
    if not rows:
        return None
    table, key = chance.choice(rows)
    raw, how = spoiled(VAULT_CHECKSUMS.seal_all(table, [(key, tables[table][key])])[0][1], chance)

    def read() -> None:
        value = VAULT_CHECKSUMS.unseal(table, key, raw)
        disk.backend.damage(table, key, value)

    return Damage(Part.VAULT, f"{table.name} {key!r} {how}", read)
