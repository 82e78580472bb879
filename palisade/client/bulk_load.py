"""Loads many entries through the client API, pipelined. Entries that already have the value are skipped.

An interrupted load continues where it stopped; a second load writes nothing. Repeating it is safe because every key has
a fixed value.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from palisade.catalog.demo.entries import DONE_KEY, ROOT, CatalogEntry, demo_entries, done_entry
from palisade.catalog.demo.flights import find_data, read_rows, source_name
from palisade.metastore.results import RangeResult

Progress = Callable[[int, int], None]


class BulkStore(Protocol):
    """The part of `client.Client` that loading needs."""

    async def range(self, key: bytes, range_end: bytes = b"", *, prefix: bool = False) -> RangeResult: ...
    async def put_many(
        self, items: Iterable[tuple[bytes, bytes]], *, progress: Callable[[int], None] | None = None
    ) -> int: ...


@dataclass(frozen=True, slots=True)
class LoadReport:
    """`entries` exist now; `written` of them were missing or had another value before."""

    entries: int
    written: int


def read_demo(folder: Path | None = None) -> list[CatalogEntry]:
    """The whole demo catalog; the entry that marks it as complete comes last. Raises DataSetError."""
    source = source_name()
    entries = list(demo_entries(partial(read_rows, find_data(folder)), source))
    return [*entries, done_entry(len(entries), source)]


async def load_demo(store: BulkStore, read: Callable[[], list[CatalogEntry]], progress: Progress) -> LoadReport | None:
    """Complete the demo catalog; None if it is marked as complete. Raises the errors of the store and of `read`."""
    if (await store.range(DONE_KEY)).kvs:
        return None
    entries = await asyncio.to_thread(read)
    return await load_entries(store, entries, progress, ROOT.encode())


async def load_entries(
    store: BulkStore, entries: Sequence[CatalogEntry], progress: Progress, prefix: bytes | None = None
) -> LoadReport:
    """Write the entries that the store does not have with the same value; the last one after all others.

    `prefix`: a prefix of every key. The keys below it are read first, and equal entries are not written again.
    """
    present = await read_prefix(store, prefix) if prefix is not None else {}
    missing = [entry for entry in entries if present.get(entry.key) != entry.value]
    done = len(entries) - len(missing)

    def count(written: int) -> None:
        progress(done + written, len(entries))

    progress(done, len(entries))
    await store.put_many(missing[:-1], progress=count)
    await store.put_many(missing[-1:])
    progress(len(entries), len(entries))
    return LoadReport(len(entries), len(missing))


async def read_prefix(store: BulkStore, prefix: bytes) -> dict[bytes, bytes]:
    """Key -> value of every key with the prefix."""
    return {kv.key: kv.value for kv in (await store.range(prefix, prefix=True)).kvs}
