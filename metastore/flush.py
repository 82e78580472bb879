"""Writes the layers in memory to the file: one transaction, begun and committed in the disk thread.

The event loop's thread does the puts, sorted, in slices of about a millisecond, yielding in between. The layers must
not change meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from palisade.base.commit_thread import DiskThread
from palisade.metastore.lmdb_file import LmdbFile
from palisade.metastore.ordered_map import Table
from palisade.metastore.write_overlay import Layer

SLICE_ITEMS = 1024
SLICE_BYTES = 512 * 1024

Item = tuple[bytes, bytes | None]


async def commit_layers(file: LmdbFile, thread: DiskThread, layers: Sequence[Layer]) -> None:
    """Return when they are durable. Raises lmdb.Error, with the file unchanged."""
    for layer in layers:
        for _ in layer.sort_in_slices():
            await asyncio.sleep(0)
    txn = await thread.run(file.begin)
    try:
        for table in Table:
            await _put(file, txn, table, layers[table])
    except BaseException:
        await thread.run(txn.abort)
        raise
    await thread.run(txn.commit)


async def _put(file: LmdbFile, txn: Any, table: Table, layer: Layer) -> None:
    for chunk in _slices(layer):
        file.put_items(txn, table, chunk)
        await asyncio.sleep(0)


def _slices(layer: Layer) -> Iterator[list[Item]]:
    """All items in order, in slices bounded by number and bytes, at least one item each."""
    keys, values = layer.keys(), layer.values
    start = 0
    while start < len(keys):
        chunk = [(key, values[key]) for key in keys[start : start + SLICE_ITEMS]]
        sizes = [len(value) for _, value in chunk if value]
        if sum(sizes) > SLICE_BYTES:
            del chunk[_fitting(chunk) :]
        start += len(chunk)
        yield chunk


def _fitting(chunk: list[Item]) -> int:
    """How many of the first items fill SLICE_BYTES."""
    sizes = accumulate(len(value or b"") for _, value in chunk)
    return next(number for number, size in enumerate(sizes, 1) if size > SLICE_BYTES)
