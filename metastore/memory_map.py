"""The ordered map in memory: a dict per table, with its sorted keys created when a scan needs them.

For the simulator and for tests; the same contract as `LmdbStore` (`tests/contracts/`).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence

from palisade.metastore.ordered_map import Owned, Peeked, Table, in_bounds

FEW_KEYS = 16


class MemoryTable:
    """One table. New keys wait in a set until a scan needs the order: a bulk load sorts once."""

    __slots__ = ("_added", "_keys", "changes", "values")

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.changes = 0
        self._keys: list[bytes] = []
        self._added: set[bytes] = set()

    def put(self, key: bytes, value: bytes) -> None:
        if key not in self.values:
            self._added.add(key)
        self.values[key] = value
        self.changes += 1

    def put_many(self, items: Mapping[bytes, bytes]) -> None:
        self._added.update(key for key in items if key not in self.values)
        self.values.update(items)
        self.changes += 1

    def delete(self, key: bytes) -> None:
        if self.values.pop(key, None) is None:
            return
        if key in self._added:
            self._added.remove(key)
        else:
            del self._keys[bisect_left(self._keys, key)]
        self.changes += 1

    def replace(self, values: dict[bytes, bytes]) -> None:
        self.values = dict(values)
        self.changes += 1
        self._keys = sorted(values)
        self._added = set()

    def keys(self) -> list[bytes]:
        """Every key in order. A few new ones are inserted; many are merged by sorting, which is nearly linear."""
        if len(self._added) <= FEW_KEYS:
            for key in self._added:
                insort(self._keys, key)
        else:
            self._keys.extend(self._added)
            self._keys.sort()
        self._added.clear()
        return self._keys


class MemoryMap(Owned):
    """`OrderedMap` over one `MemoryTable` per table."""

    def __init__(self) -> None:
        self._tables = [MemoryTable() for _ in Table]

    def get(self, table: Table, key: bytes) -> bytes | None:
        return self._tables[table].values.get(key)

    def get_many(self, table: Table, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        values = self._tables[table].values
        return {key: values[key] for key in keys if key in values}

    def put(self, table: Table, key: bytes, value: bytes) -> None:
        self._tables[table].put(key, value)

    def put_many(self, table: Table, items: Mapping[bytes, bytes]) -> None:
        self._tables[table].put_many(items)

    def delete(self, table: Table, key: bytes) -> None:
        self._tables[table].delete(key)

    def scan(
        self, table: Table, start: bytes, end: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        content = self._tables[table]
        keys = content.keys()
        first = bisect_left(keys, start)
        stop = len(keys) if end is None else bisect_left(keys, end)
        numbers = range(stop - 1, first - 1, -1) if reverse else range(first, stop)
        changes = content.changes
        for number in numbers:
            yield keys[number], content.values[keys[number]]
            if content.changes != changes:
                raise RuntimeError(f"table {table.name} changed during a scan: collect the keys first")

    def peek(self, table: Table, start: bytes, end: bytes | None, limit: int) -> tuple[list[Peeked], bytes | None]:
        rows, more = in_bounds(self.scan(table, start, end), limit)
        return rows, rows[-1][0] + b"\0" if more else None

    def content(self) -> list[dict[bytes, bytes]]:
        """A copy of every table, as a flush would store it."""
        self.owner.saving()
        return [dict(table.values) for table in self._tables]

    def replace_content(self, content: list[dict[bytes, bytes]]) -> None:
        for table in Table:
            self._tables[table].replace(content[table])
