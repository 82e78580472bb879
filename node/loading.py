"""Loads many entries through the client API: pipelined, and again at any time. What is there already is not written.

A load that broke off goes on where it stopped; a second one writes nothing. Puts of fixed values may be repeated, so
an unknown outcome is tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from catalog.demo import DONE_KEY, ROOT, CatalogEntry, demo_entries, done_entry
from catalog.flights import find_data, read_rows, source_name
from metastore.requests import prefix_end

OUTSTANDING = 256
PAGE = 1000
PROGRESS_EVERY = 50
Progress = Callable[[int, int], None]


class Store(Protocol):
    """The part of `node.client.Client` that loading needs."""

    async def put(self, key: bytes, value: bytes) -> Any: ...
    async def range(self, key: bytes, range_end: bytes = b"", *, limit: int = 0) -> Any: ...


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


async def load_demo(store: Store, read: Callable[[], list[CatalogEntry]], progress: Progress) -> LoadReport | None:
    """Make the demo catalog complete; None when its mark says that it is. Raises what the store and `read` raise."""
    if (await store.range(DONE_KEY)).kvs:
        return None
    entries = await asyncio.to_thread(read)
    return await load_entries(store, entries, progress, ROOT.encode())


async def load_entries(
    store: Store, entries: Sequence[CatalogEntry], progress: Progress, prefix: bytes | None = None
) -> LoadReport:
    """Write those entries that are not in the store with the same value; the last one after all others.

    `prefix`, where given, is one that every key has: what lies below it is read first, and not written again.
    """
    present = await read_prefix(store, prefix) if prefix is not None else {}
    missing = [entry for entry in entries if present.get(entry.key) != entry.value]
    done = len(entries) - len(missing)
    progress(done, len(entries))

    def count(written: int) -> None:
        progress(done + written, len(entries))

    await put_all(store, missing[:-1], count)
    await put_all(store, missing[-1:], lambda written: count(len(missing) - 1 + written))
    return LoadReport(len(entries), len(missing))


async def read_prefix(store: Store, prefix: bytes) -> dict[bytes, bytes]:
    """Key -> value of everything below the prefix, read in pages."""
    found: dict[bytes, bytes] = {}
    start, end = prefix, prefix_end(prefix)
    while True:
        page = (await store.range(start, end, limit=PAGE)).kvs
        found.update((kv.key, kv.value) for kv in page)
        if len(page) < PAGE:
            return found
        start = page[-1].key + b"\0"


async def put_all(store: Store, entries: Sequence[CatalogEntry], count: Callable[[int], None]) -> None:
    """Put every entry, `OUTSTANDING` at a time; `count` hears how many are written. The first error ends it."""
    waiting = iter(entries)
    written = 0

    async def work() -> None:
        nonlocal written
        for entry in waiting:
            await store.put(entry.key, entry.value)
            written += 1
            if written % PROGRESS_EVERY == 0 or written == len(entries):
                count(written)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(OUTSTANDING, len(entries))):
                group.create_task(work())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
