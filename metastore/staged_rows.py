"""Rows of a batch that is larger than one transaction, staged in *chunks*, and the command that writes a chunk to its
keys.

A chunk is an ordinary key whose value contains rows: [key, value, key, value, ...] in msgpack; a value of nil deletes
its key. `CopyChunk` writes the rows of one chunk and deletes the chunk, in one revision, so a chunk is copied once,
however often the command is repeated. It does so only while the batch is open: while its manifest, an ordinary key,
exists since the revision `opened`.

A batch takes effect at `opened`: a row whose key has changed since then is omitted. That includes a key that was
deleted since, which no compare of a transaction can see; it is known from its tombstone. Tombstones below MM are
removed at different times on different replicas, so none of these counts: the result depends on replicated state alone.
A delete below MM is therefore taken for one before the batch; a process that copies pins `opened`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgpack

from palisade.base.counted import counted
from palisade.base.key_text import key_text
from palisade.metastore.errors import InvalidRequest
from palisade.metastore.history import is_tombstone, mod_of
from palisade.metastore.limits import Limits
from palisade.metastore.mvcc import StoreView, end_of, find
from palisade.metastore.ordered_map import Table
from palisade.metastore.requests import CopyChunk
from palisade.metastore.results import DoneResult
from palisade.metastore.revision_writer import RevisionWriter

Row = tuple[bytes, bytes | None]
_pack = msgpack.Packer().pack


def pack_chunk(rows: Iterable[Row]) -> bytes:
    contents: list[bytes | None] = []
    for row in rows:
        contents += row
    packed: bytes = _pack(contents)
    return packed


def rows_of_chunk(packed: bytes) -> list[Row]:
    """Raises InvalidRequest, with the same text on every replica."""
    try:
        contents = msgpack.unpackb(packed)
    except MemoryError:
        raise
    except Exception:
        raise InvalidRequest("the chunk is not msgpack: stage it with pack_chunk") from None
    if type(contents) is not list or not contents or len(contents) % 2:
        raise InvalidRequest("the chunk is not an array of keys and values: stage it with pack_chunk")
    return list(zip(contents[::2], contents[1::2], strict=True))


class StagedRows:
    """Executes `CopyChunk`."""

    __slots__ = ("_limits", "_view", "_writer")

    def __init__(self, view: StoreView, writer: RevisionWriter, limits: Limits) -> None:
        self._view, self._writer, self._limits = view, writer, limits

    def copy(self, request: CopyChunk) -> DoneResult:
        """`count`: the rows that were written. Nothing happens if the batch is not open or the chunk was copied.

        A full store does not refuse it: its rows were admitted when they were staged. Raises InvalidRequest.
        """
        view, writer = self._view, self._writer
        manifest, chunk = find(view, request.manifest, None), find(view, request.chunk, None)
        if manifest is None or manifest.create_revision != request.opened or chunk is None:
            return DoneResult(view.state.revision, 0)
        rows = rows_of_chunk(chunk.value)
        self._check(rows, request)
        latest = view.tables.get_many(Table.KEY, [key for key, _ in rows])
        written = 0
        for key, value in rows:
            row = latest.get(key, b"")
            if self._has_changed(row, request.opened):
                continue
            if value is not None:
                writer.put(key, value, 0)
            elif row and not is_tombstone(row):
                writer.delete(key)
            else:
                continue
            written += 1
        writer.delete(request.chunk)
        return DoneResult(writer.close(), written)

    def _has_changed(self, row: bytes, opened: int) -> bool:
        if not row:
            return False
        changed = mod_of(row)
        return changed > opened and (changed >= self._view.state.compacted or not is_tombstone(row))

    def _check(self, rows: Sequence[Any], request: CopyChunk) -> None:
        """Raises InvalidRequest for rows that could not be written together."""
        limits, end, seen = self._limits, end_of(request.range_end), set[bytes]()
        if len(rows) > limits.txn_operations_max:
            raise InvalidRequest(f"the chunk has {counted(len(rows), 'row')}; the limit is {limits.txn_operations_max}")
        for key, value in rows:
            if type(key) is not bytes or not 0 < len(key) <= limits.key_bytes_max or key in seen:
                raise InvalidRequest("the chunk has a key that is not bytes, empty, too large, or given twice")
            if value is not None and (type(value) is not bytes or len(value) > limits.value_bytes_max):
                raise InvalidRequest(f"the value of {key_text(key)} in the chunk is too large, or not bytes")
            if key < request.key or (end is not None and key >= end) or key in (request.chunk, request.manifest):
                raise InvalidRequest(f"the key {key_text(key)} of the chunk is outside of the range of its batch")
            seen.add(key)
