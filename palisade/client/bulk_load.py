"""Loads many entries through the client API: pipelined, and again at any time. What is there already is not written.

A load that broke off goes on where it stopped; a second one writes nothing. Puts of fixed values may be repeated, so
nothing can go wrong by that.
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
    """`entries` are there now; `written` of them were missing or different before."""

    entries: int
    written: int


def read_demo(folder: Path | None = None) -> list[CatalogEntry]:
    """The whole demo catalog, the mark of completeness last. Raises DataSetError."""
    source = source_name()
    entries = list(demo_entries(partial(read_rows, find_data(folder)), source))
    return [*entries, done_entry(len(entries), source)]


async def load_demo(store: BulkStore, read: Callable[[], list[CatalogEntry]], progress: Progress) -> LoadReport | None:
    """Make the demo catalog complete; None when its mark says that it is. Raises what the store and `read` raise."""
    if (await store.range(DONE_KEY)).kvs:
        return None
    entries = await asyncio.to_thread(read)
    return await load_entries(store, entries, progress, ROOT.encode())


async def load_entries(
    store: BulkStore, entries: Sequence[CatalogEntry], progress: Progress, prefix: bytes | None = None
) -> LoadReport:
    """Write those entries that are not in the store with the same value; the last one after all others.

    `prefix`, where given, is one that every key has: what lies below it is read first, and not written again.
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
    """Key -> value of everything below the prefix."""
    return {kv.key: kv.value for kv in (await store.range(prefix, prefix=True)).kvs}
