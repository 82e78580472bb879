"""Loads many entries through the client API, pipelined. Entries that already have the value are skipped.

An interrupted load continues where it stopped; a second load writes nothing. Repeating it is safe because every key has
a fixed value.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from palisade.catalog.demo.entries import DONE_KEY, ROOT, CatalogEntry, DemoCatalog, demo_catalog, done_entry
from palisade.catalog.demo.flights import find_data, read_rows, sha256_of_file, source_name
from palisade.catalog.demo.known_records import known_records, stored_records
from palisade.catalog.segment import SegmentRecord
from palisade.client.publishing import PublishingStore, publish
from palisade.metastore.results import RangeResult

Progress = Callable[[int, int], None]


class BulkStore(Protocol):
    """The part of `client.Client` that loading needs."""

    async def range(
        self, key: bytes, range_end: bytes = b"", *, prefix: bool = False, revision: int = 0
    ) -> RangeResult: ...
    async def put_many(
        self, items: Iterable[tuple[bytes, bytes]], *, progress: Callable[[int], None] | None = None
    ) -> int: ...


@dataclass(frozen=True, slots=True)
class LoadReport:
    """`entries` exist now; `written` of them were missing or had another value before. `published`: segments."""

    entries: int
    written: int
    published: int = 0


class DemoStore(BulkStore, PublishingStore, Protocol):
    """What loading the demo catalog needs."""


def read_demo(folder: Path | None = None) -> DemoCatalog:
    """The whole demo catalog; the entry that marks it as complete comes last. Raises DataSetError."""
    source, where, stored = source_name(), find_data(folder), stored_records()
    found = demo_catalog(
        partial(read_rows, where),
        source,
        lambda table: known_records(stored, table, sha256_of_file(where, table)),
    )
    found.entries.append(done_entry(len(found.entries), source))
    return found


async def load_demo(store: DemoStore, read: Callable[[], DemoCatalog], progress: Progress) -> LoadReport | None:
    """Complete the demo catalog; None if it is marked as complete. Raises the errors of the store and of `read`."""
    if (await store.range(DONE_KEY)).kvs:
        return None
    return await load_catalog(store, await asyncio.to_thread(read), progress)


async def load_catalog(store: DemoStore, found: DemoCatalog, progress: Progress) -> LoadReport:
    """Publishes the segments, then writes the entries. Raises the errors of the store and of `publish`."""
    by_source: dict[str, list[SegmentRecord]] = {}
    for record in found.segments:
        by_source.setdefault(record.segment.data_source, []).append(record)
    published = sum([await publish(store, name, records) for name, records in by_source.items()])
    return replace(await load_entries(store, found.entries, progress, ROOT.encode()), published=published)


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
