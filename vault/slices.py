"""A range of the vault in slices, each from a snapshot of its own: for readers of many rows in other processes.

A snapshot that is held keeps the pages of LMDB from being reused, so a slice ends after about 2 MiB and drops it.
Slices may be of different revisions; each one names its own. They show the entries alone, as of LV: a vault that is
served contains released changes only. Pure.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from palisade.base.checksums import CHECKSUM_BYTES
from palisade.base.long_keys import LONG_BYTES, PREFIX_BYTES, in_order, stored_end, stored_start
from palisade.vault.change import with_key
from palisade.vault.page_keys import ReadPage, page_keys
from palisade.vault.position import VaultLineage, unpack_lineage, unpack_position
from palisade.vault.snapshot_reads import POSITION, RowChunk, VaultSnapshot
from palisade.vault.tables import VaultTable

LINEAGE = b"lineage"
BYTES_PER_SLICE = 2 << 20
NO_CHECKSUM = bytes(CHECKSUM_BYTES)
"""In place of the checksum of a row that was not copied from a table as stored."""
STRIDE, SAMPLES_PER_SLICE = 64, 1_000
"""One key in `STRIDE` is a sample. One snapshot is held for this many samples at most, for some milliseconds."""
PAGES_PER_SAMPLE, SAMPLES_MIN = 4, 500
"""One page in `PAGES_PER_SAMPLE` is a sample. A range with fewer than `SAMPLES_MIN` is not divided by its pages."""


@dataclass(frozen=True, slots=True)
class VaultSlice:
    """The rows of a range as of `revision`, in key order, one after the other in `page`; `sizes`: the bytes of each. A
    row is a body (`change.py`) as it is stored, with `CHECKSUM_BYTES` after it: they were verified, and cutting them
    off would copy each row. `until`: where the next slice begins; None at the end of the range."""

    revision: int
    lineage: VaultLineage | None
    page: bytes
    sizes: array[int]
    until: bytes | None


def slice_of(snapshot: VaultSnapshot, start: bytes, end: bytes | None, bytes_max: int = BYTES_PER_SLICE) -> VaultSlice:
    """Raises VaultDamaged. Rows are joined chunk by chunk: the memory of one chunk serves the next."""
    pages, sizes, size = list[bytes](), array("I"), 0
    until = None
    for chunk in _in_key_order(snapshot, start, end):
        pages.append(chunk.page)
        sizes += chunk.sizes
        size += len(chunk.page)
        if size >= bytes_max:
            until = chunk.keys[-1] + b"\0"
            break
    position = unpack_position(snapshot.get(VaultTable.META, POSITION))
    lineage = unpack_lineage(snapshot.get(VaultTable.META, LINEAGE))
    return VaultSlice(position.revision, lineage, b"".join(pages), sizes, until)


def samples_of(snapshot: VaultSnapshot, start: bytes, end: bytes | None) -> tuple[list[bytes], bytes | None]:
    """Keys `STRIDE` apart from `start` on, and where the next slice of samples begins; None at the end. As stored, and
    not verified: for dividing a range, not for reading it."""
    found = list[bytes]()
    for key in snapshot.some_keys(VaultTable.ENTRY, start, STRIDE):
        if end is not None and key >= end:
            break
        if len(found) == SAMPLES_PER_SLICE:
            return found, key
        found.append(key)
    return found, None


def samples_of_pages(
    snapshot: VaultSnapshot, read: ReadPage, start: bytes, end: bytes | None
) -> tuple[int, list[bytes]] | None:
    """About how many keys the range has, and samples of them, as `samples_of` returns them, in a thirtieth of the time.
    None: the range has too few pages to be divided by them. Raises UnknownPages."""
    tree = snapshot.tree(VaultTable.ENTRY)
    found = list(page_keys(read, tree, start, end, PAGES_PER_SAMPLE))
    if len(found) < SAMPLES_MIN:
        return None
    return len(found) * PAGES_PER_SAMPLE * tree.entries // tree.leaf_pages, found


def _in_key_order(snapshot: VaultSnapshot, start: bytes, end: bytes | None) -> Iterator[RowChunk]:
    """From the first long key on, of one row at a time."""
    at = start
    for chunk in snapshot.chunks(VaultTable.ENTRY, start) if len(start) <= PREFIX_BYTES else ():
        keys, page, sizes = chunk
        if max(sizes) > LONG_BYTES and LONG_BYTES in map(len, keys):  # a row contains its key
            break
        if end is not None and keys[-1] >= end:
            if count := bisect_left(keys, end):
                yield RowChunk(keys[:count], page[: sum(sizes[:count])], sizes[:count])
            return
        yield chunk
        at = keys[-1] + b"\0"
    stored = snapshot.scan(VaultTable.ENTRY, stored_start(at), stored_end(end))
    for key, body in in_order(stored, at, end, opened=with_key):
        row = body + NO_CHECKSUM
        yield RowChunk([key], row, array("I", [len(row)]))
