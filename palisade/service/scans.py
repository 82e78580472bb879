"""Scans of a whole range at one revision, and of the changes between two revisions, for readers of many rows.

A reader counts first, which fixes the revision, divides the keys, and then requests page after page from any member:
every replica that retains the revision gives the same answer. Pages are computed in slices that yield to the event
loop. A pin keeps the revision from being compacted meanwhile; like every pin it ends by itself.
"""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from typing import Any

from palisade.metastore.change_feed import ROWS_PER_SLICE
from palisade.metastore.command_codec import decode_result, encode_command
from palisade.metastore.errors import InvalidRequest, TooManyPins
from palisade.metastore.lineage import Lineage
from palisade.metastore.mvcc import end_of
from palisade.metastore.requests import Pin, Range, Unpin, prefix_end
from palisade.metastore.validation import check_pin
from palisade.service.key_values import KeyValues
from palisade.wire.batch_records import BATCHES, KeySpan, Window, window_of
from palisade.wire.scan_pages import ChangePosition, KeyCounts, change_bytes, pack_change, pack_rows, without_value

PAGE_BYTES = 1024 * 1024
SLICES_PER_PAGE = 64
"""A page ends after this many slices even if it found little, so that no request outlives its deadline."""
STRIDE = 64
"""One key in this many is a sample: a range can be divided at it."""
PIN_NAMES = "reader/"
PINS_SHARE = 2
"""Readers hold at most this part of the pins: the others are for recovering nodes."""


class Scans:
    """Of one member. Callers have been authorized to read the range."""

    def __init__(self, service: KeyValues) -> None:
        self._service = service
        self._store = service.store

    async def count(self, key: bytes, range_end: bytes, revision: int) -> KeyCounts:
        """`revision` 0: the newest, once every strict change up to it is released. Raises Compacted, FutureRevision,
        ReleasePending, Unavailable."""
        await self._service.barrier()
        store, strict = self._store, self._service.strict
        if revision <= 0:
            revision = store.revision
            if strict is not None:
                await strict.seen(revision, self._service.deadline_s)
        samples: list[bytes] = []
        keys, at, until = 0, key, None
        for _ in range(SLICES_PER_PAGE):
            found, until = store.feed.keys(revision, at, end_of(range_end))
            samples += found[-keys % STRIDE :: STRIDE]
            keys += len(found)
            if until is None:
                break
            at = until
            await asyncio.sleep(0)
        return KeyCounts(revision, self._store.lineage, STRIDE, samples, keys, until)

    async def windows(self, key: bytes, range_end: bytes) -> list[Window]:
        """The revisions between which a part of a batch may be in [key, range_end), of every batch whose closing is
        retained (`wire.batch_records`). A batch that opens at a revision read before is among them."""
        await self._service.barrier()
        span, found = KeySpan(key, range_end), list[Window]()
        for record in self._store.range(Range(BATCHES, prefix_end(BATCHES))).kvs:
            window = window_of(record.key, record.value, record.create_revision, span)
            if window is not None:
                found.append(window)
        return found

    async def rows(
        self, lineage: Lineage, revision: int, key: bytes, range_end: bytes, *, values: bool = True
    ) -> tuple[bytes, bytes | None]:
        """A page of the rows of [key, range_end) at `revision`; where the next one begins, None at the end. `values`
        False: all values are empty in the page."""
        await self._reach(lineage, revision)
        found: list[bytes] = []
        size, at, until = 0, key, None
        for _ in range(SLICES_PER_PAGE):
            rows, until = self._store.feed.rows(revision, None, 0, at, end_of(range_end))
            found += (packed := rows if values else list(map(without_value, rows)))
            size += sum(map(len, packed))
            if until is None or size >= PAGE_BYTES:
                break
            at = until
            await asyncio.sleep(0)
        return pack_rows(found), until

    async def changes(
        self, lineage: Lineage, first: ChangePosition, last: int, key: bytes, range_end: bytes, *, values: bool = True
    ) -> tuple[bytes, ChangePosition | None]:
        """A page of the changes of [key, range_end) from `first` to the end of revision `last`; where the next one
        begins, None at the end. `last` exists; it is never below the first revision by more than one. `values` False:
        all values are empty in the page, replaced ones too."""
        await self._reach(lineage, last)
        end, found, size = end_of(range_end), list[bytes](), 0
        until: ChangePosition | None = first
        for _ in range(SLICES_PER_PAGE):
            if until is None or size >= PAGE_BYTES:
                break
            at, until = until, None
            changes = self._store.feed.dated_changes(at.revision, at.sub, last)
            for number, (wall_ms, revision, sub, name, row, replaced) in enumerate(changes):
                if number == ROWS_PER_SLICE or size >= PAGE_BYTES:
                    until = ChangePosition(revision, sub)
                    break
                if name >= key and (end is None or name < end):
                    if not values:
                        row, replaced = without_value(row), without_value(replaced)
                    found.append(change := pack_change(wall_ms, sub, row, replaced))
                    size += len(change)
            await asyncio.sleep(0)
        return b"".join(found), until

    async def first_since(self, wall_ms: int) -> int:
        """The first revision written at `wall_ms` or later, by the leaders' wall clock; the next revision if there is
        none. Raises Compacted if it may have been compacted."""
        await self._service.barrier()
        return self._store.feed.first_since(wall_ms)

    async def end_of_bytes(
        self, lineage: Lineage, first: int, last: int, key: bytes, range_end: bytes, bytes_max: int
    ) -> tuple[int, int]:
        """How far the changes of [key, range_end) in the revisions `first` to `last` fit into `bytes_max`: the last
        revision (`first` - 1: none), and their bytes. Reads a bounded number of changes, so more may fit."""
        await self._reach(lineage, last)
        end, at = end_of(range_end), ChangePosition(first)
        revision, before, total = first, 0, 0
        for _ in range(SLICES_PER_PAGE):
            changes = self._store.feed.dated_changes(at.revision, at.sub, last)
            for number, (_, at_revision, sub, name, row, replaced) in enumerate(changes):
                if at_revision > revision:
                    revision, before = at_revision, total
                if number == ROWS_PER_SLICE:
                    at = ChangePosition(revision, sub)
                    break
                if name >= key and (end is None or name < end):
                    total += change_bytes(row, replaced)
                if total > bytes_max:
                    return revision - 1, before
            else:
                return last, total
            await asyncio.sleep(0)
        return revision - 1, before

    async def pin(self, key: bytes, range_end: bytes, name: str, revision: int, ttl_ms: int) -> int:
        """Retain `revision` for `ttl_ms`; repeating range and name renews it. Returns the remaining milliseconds.

        Raises Compacted, FutureRevision, InvalidRequest (also at the end of its longest life), TooManyPins.
        """
        request = Pin(pin_id(key, range_end, name), revision, ttl_ms)
        check_pin(request, self._store.limits)
        pins, most = self._store.live_pins(PIN_NAMES), self._store.limits.pins_max // PINS_SHARE
        if request.id not in pins and len(pins) >= most:
            raise TooManyPins(f"{most} pins of readers exist: wait until one of these jobs ends")
        result = await self._propose(request)
        return int(result.remaining_ms)

    async def unpin(self, key: bytes, range_end: bytes, name: str) -> None:
        await self._propose(Unpin(pin_id(key, range_end, name)))

    async def _propose(self, command: Pin | Unpin) -> Any:
        applied = await self._service.group.propose(encode_command(command), timeout_s=self._service.deadline_s)
        return decode_result(applied.result)

    async def _reach(self, lineage: Lineage, revision: int) -> None:
        """A replica that has not yet applied the revision waits for it."""
        if revision > self._store.revision:
            await self._service.barrier()
        own = self._store.lineage
        if lineage != own:
            raise InvalidRequest(
                f"this is generation {own.generation} of cluster {own.cluster_id}, not generation "
                f"{lineage.generation} of {lineage.cluster_id}: begin a new scan"
            )
        self._store.feed.require(revision)


def pin_id(key: bytes, range_end: bytes, name: str) -> str:
    """It contains the range, so a caller without the right to read that range can neither renew nor release the pin."""
    digest = blake2b(len(key).to_bytes(4, "big") + key + range_end, digest_size=16)
    return f"{PIN_NAMES}{digest.hexdigest()}/{name}"
