"""A vault's tables in memory, for the simulator: commits survive `Vault`; `lose_power` drops the unsynced ones."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from palisade.vault.record_check import CHECKSUMS
from palisade.vault.tables import Changes, Pause, VaultTable

Content = dict[VaultTable, dict[bytes, bytes]]


class MemoryBackend:
    """Keep it to open the vault again, like a disk."""

    def __init__(self) -> None:
        self._tables: Content = {table: {} for table in VaultTable}
        self._synced: Content = {table: {} for table in VaultTable}
        self._keys: dict[VaultTable, list[bytes]] = {}
        self.commits = 0

    def get(self, table: VaultTable, key: bytes) -> bytes | None:
        return self._tables[table].get(key)

    def get_many(self, table: VaultTable, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        content = self._tables[table]
        return {key: content[key] for key in keys if key in content}

    def scan(self, table: VaultTable, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        content, keys = dict(self._tables[table]), self._sorted(table)
        stop = len(keys) if end is None else bisect_left(keys, end)
        return ((key, content[key]) for key in keys[bisect_left(keys, start) : stop])

    def key_pages(self, table: VaultTable, start: bytes, end: bytes | None, size: int) -> Iterator[list[bytes]]:
        found = (key for key, _ in self.scan(table, start, end))
        return iter(lambda: list(islice(found, size)), [])

    def _sorted(self, table: VaultTable) -> list[bytes]:
        if table not in self._keys:
            self._keys[table] = sorted(self._tables[table])
        return self._keys[table]

    def commit(self, changes: Changes, cleared: Sequence[VaultTable] = ()) -> None:
        for table in cleared:
            self._tables[table] = {}
        for table, rows in changes.items():
            content = self._tables[table]
            for key, value in rows.items():
                if value is None:
                    content.pop(key, None)
                else:
                    content[key] = value
        self._keys.clear()
        self.commits += 1

    async def commit_in_slices(self, slices: Callable[[], Iterator[Changes]], pause: Pause) -> None:
        gathered: dict[VaultTable, dict[bytes, bytes | None]] = {}
        for part in slices():
            for table, rows in part.items():
                gathered.setdefault(table, {}).update(rows)
            await pause()
        self.commit(gathered)

    def sync(self) -> None:
        self._synced = {table: dict(content) for table, content in self._tables.items()}

    def lose_power(self) -> None:
        """Back to the state of the last `sync` or `close`."""
        self._tables = {table: dict(content) for table, content in self._synced.items()}
        self._keys.clear()

    def close(self) -> None:
        self.sync()

    def begin(self) -> MemoryTransaction:
        """A snapshot with the interface of an LMDB read transaction (`snapshot_reads.Transaction`); handles are the
        tables.
        """
        return MemoryTransaction({table: dict(content) for table, content in self._tables.items()})


class MemoryTransaction:
    """Values are sealed, as on disk."""

    def __init__(self, content: Content) -> None:
        self._content = content

    def get(self, key: bytes, default: None, db: VaultTable) -> bytes | None:
        """Raises TypeError for a key that is not bytes, as LMDB does."""
        if type(key) is not bytes:
            raise TypeError(f"a key must be bytes, not {type(key).__name__}")
        value = self._content[db].get(key)
        return default if value is None else CHECKSUMS.seal_all(db, [(key, value)])[0][1]

    def cursor(self, db: VaultTable) -> MemoryCursor:
        return MemoryCursor(CHECKSUMS.seal_all(db, sorted(self._content[db].items())))


class MemoryCursor:
    def __init__(self, rows: list[tuple[bytes, bytes]]) -> None:
        self._rows = rows
        self._at = 0

    def __enter__(self) -> MemoryCursor:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def set_range(self, key: bytes) -> bool:
        self._at = bisect_left(self._rows, (key, b""))
        return self._at < len(self._rows)

    def iternext(self, *, values: bool = True) -> Iterator[Any]:
        rows = self._rows[self._at :]
        return iter(rows) if values else (key for key, _ in rows)
