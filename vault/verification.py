"""Verifies a vault as a whole, beyond the checks of single reads (R1, M7).

A checksum shows that a value is correct, not that one is missing. The bucket sums show that: they are recomputed from
every entry. The record of LV contains the total of the sums, because entries and sums that are both of an older moment
match each other as well. Thus a vault that passes is, bit for bit, the cluster's state at LV, if its digests are the
cluster's. `verify` reads one moment, in slices, while the vault continues. `verify_at_rest` adds the structure of the
pages, for a file that no process has open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from palisade.base.counted import counted
from palisade.base.digest import BUCKETS, Sums, content_of, leaf_of, replace_leaf
from palisade.base.lmdb_env import problem_of
from palisade.base.long_keys import stored_key
from palisade.vault.change import is_body, item_of
from palisade.vault.directory import check_head
from palisade.vault.errors import RESET, VaultDamaged
from palisade.vault.lmdb_tables import LmdbBackend
from palisade.vault.staging import check_pending
from palisade.vault.tables import VaultTable
from palisade.vault.vault import Vault

SLICE_ROWS = 500


def verify(vault: Vault) -> Iterator[int]:
    """Yields how many entries were verified, every `SLICE_ROWS` of them. Raises VaultDamaged at the first fault.

    Of the moment of the first step: the sums of a moment are never changed afterwards, only replaced.
    """
    then, said, position = vault.sums, vault.key_count, vault.position
    highest = vault.revision if vault.recovering is None else vault.recovering.highest
    sums: Sums = [0] * BUCKETS
    keys = 0
    for stored, entry in vault.backend.scan(VaultTable.ENTRY, b"", None):
        check_entry(stored, entry, highest)
        replace_leaf(sums, item_of(entry).key, 0, leaf_of(entry))
        keys += 1
        if keys % SLICE_ROWS == 0:
            yield keys
    wrong = [number for number in range(BUCKETS) if sums[number] != then[number]]
    if wrong:
        raise VaultDamaged(
            f"{len(wrong)} bucket sums of the vault do not match its entries, the first is {wrong[0]}: a key is lost, "
            f"added or changed; {RESET}"
        )
    if position.content is not None and position.content != content_of(sums):
        raise VaultDamaged(
            f"the entries of the vault are not those of revision {position.revision}: some of them are of another "
            f"moment; {RESET}"
        )
    if keys != said:
        raise VaultDamaged(f"the vault has {counted(keys, 'key')}, its record states {said}: {RESET}")
    for stored, packed in vault.backend.scan(VaultTable.PENDING, b"", None):
        check_pending(stored, packed)
    yield keys


def check_entry(stored: bytes, entry: bytes, highest: int) -> None:
    """Raises VaultDamaged unless the entry is a live version of that key."""
    item = item_of(entry) if is_body(entry) else None
    if item is None or not item.version or stored_key(item.key) != stored:
        raise VaultDamaged(f"the vault's entry of {stored[:64]!r} is damaged: {RESET}")
    if item.mod_revision > highest:
        raise VaultDamaged(
            f"the vault's entry of {stored[:64]!r} is later than the vault, which is at {highest}: {RESET}"
        )


def check_structure(path: Path) -> None:
    """Every page is reachable once or free, keys are in order, counters match. LMDB never opens the file."""
    check_head(path)
    problem = problem_of(path)
    if problem is not None:
        raise VaultDamaged(f"the vault in {path} is damaged: {problem}. {RESET}")


def check_lookups(backend: LmdbBackend) -> None:
    """A scan follows the leaves of a table; a look-up follows the separators above them."""
    for table in VaultTable:
        keys: list[bytes] = []
        for key, _ in backend.scan(table, b"", None):
            keys.append(key)
            if len(keys) == SLICE_ROWS:
                _find_all(backend, table, keys)
                keys.clear()
        _find_all(backend, table, keys)


def _find_all(backend: LmdbBackend, table: VaultTable, keys: list[bytes]) -> None:
    if backend.finds(table, keys) != len(keys):
        raise VaultDamaged(f"a key at or after {keys[0][:64]!r} in table {table.name} can't be found: {RESET}")


def verify_at_rest(path: Path, show: Callable[[int], None] = lambda _: None) -> int:
    """The number of keys of a sound vault; `show` receives the progress. Raises VaultDamaged, VaultForeign ..."""
    check_structure(path)
    backend = LmdbBackend(path, read_only=True)
    try:
        check_lookups(backend)
        keys = 0
        for keys in verify(Vault(backend)):
            show(keys)
        return keys
    finally:
        backend.close()
