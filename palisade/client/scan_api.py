"""Scans of many rows and pins, the part of `client.store_api` for pipelines.

    counts = await client.scan_counts(b"tables/", b"tables0")        # fixes the revision
    rows, until = await client.scan_rows(b"tables/", b"tables0", counts.revision, counts.lineage)

Pages are byte strings of many rows; `wire.scan_pages` unpacks them. Any member can serve any page.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from palisade.client.catalog_api import CatalogApi
from palisade.metastore.errors import InvalidRequest
from palisade.metastore.lineage import Lineage
from palisade.wire.batch_records import Window
from palisade.wire.scan_pages import ChangePosition, KeyCounts


class ScanApi(CatalogApi):
    """`range_end` is exclusive; b"\\0" is the end of all keys. Raises Compacted, FutureRevision, InvalidRequest for
    another lineage, and the errors of every call."""

    async def scan_counts(self, key: bytes, range_end: bytes, revision: int = 0) -> KeyCounts:
        """The live keys of [key, range_end) at `revision` (0: now), with samples at which the range can be divided."""
        part = _counts(await self._call("scan_count", key, range_end, revision))
        samples, keys = list(part.samples), part.keys
        while part.until is not None:
            part = _counts(await self._call("scan_count", part.until, range_end, part.revision))
            samples += part.samples
            keys += part.keys
        return part._replace(samples=samples, keys=keys)

    async def scan_windows(self, key: bytes, range_end: bytes) -> list[Window]:
        """The revisions between which the store has a part of a batch in [key, range_end): a reader that needs whole
        batches chooses none that a window `splits`."""
        return [Window(*each) for each in await self._call("scan_windows", key, range_end)]

    async def scan_rows(
        self, key: bytes, range_end: bytes, revision: int, lineage: Lineage, *, values: bool = True
    ) -> tuple[bytes, bytes | None]:
        """A page of rows from `key` on (`scan_pages.rows_of`), and where the next one begins. `values` False: the
        values are not needed; a node of this version or later sends empty ones."""
        names = [lineage.cluster_id, lineage.generation]
        page, until = await self._page("scan_rows", key, range_end, revision, names, values=values)
        return page, until

    async def scan_changes(
        self, key: bytes, range_end: bytes, first: ChangePosition, last: int, lineage: Lineage, *, values: bool = True
    ) -> tuple[bytes, ChangePosition | None]:
        """A page of the changes from `first` to the end of revision `last` (`scan_pages.changes_of`), and where the
        next one begins. `values` as of `scan_rows`, also for the replaced ones."""
        names = [lineage.cluster_id, lineage.generation]
        page, until = await self._page("scan_changes", key, range_end, list(first), last, names, values=values)
        return page, None if until is None else ChangePosition(*until)

    async def _page(self, name: str, *arguments: Any, values: bool) -> Any:
        """An older node refuses the additional argument; it sends the values."""
        if not values:
            with suppress(InvalidRequest):
                return await self._call(name, *arguments, False)
        return await self._call(name, *arguments)

    async def scan_since(self, key: bytes, range_end: bytes, wall_ms: int) -> int:
        """The first revision written at `wall_ms` or later, by the leaders' wall clock; the next revision if there is
        none. The wall clock of revisions never goes back. Raises Compacted if it may have been compacted."""
        found: int = await self._call("scan_since", key, range_end, wall_ms)
        return found

    async def scan_bytes(
        self, key: bytes, range_end: bytes, first: int, last: int, lineage: Lineage, bytes_max: int
    ) -> int:
        """The last revision up to which the changes from `first` on take at most `bytes_max` in pages. It is
        at least `first`, and at most `last`."""
        start = first
        while start <= last:
            names = [lineage.cluster_id, lineage.generation]
            end, used = await self._call("scan_bytes", key, range_end, start, last, names, bytes_max)
            if end < start:
                break
            start, bytes_max = end + 1, bytes_max - used
        return max(first, start - 1)

    async def pin(self, key: bytes, range_end: bytes, name: str, revision: int, ttl_ms: int) -> int:
        """Keep `revision` from being compacted for `ttl_ms`; the same name renews it. Returns the remaining
        milliseconds, which the cluster's longest life of a pin limits.

        The range is what will be read; the right to read it is needed.
        """
        remaining_ms: int = await self._call("pin", key, range_end, name, revision, ttl_ms)
        return remaining_ms

    async def unpin(self, key: bytes, range_end: bytes, name: str) -> None:
        """Release a pin; does nothing if it has ended."""
        await self._call("unpin", key, range_end, name)


def _counts(answer: list[Any]) -> KeyCounts:
    revision, lineage, *rest = answer
    return KeyCounts(revision, Lineage(*lineage), *rest)
