"""One watch of one stream connection: reads events from the store as fast as its client accepts them, and no faster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from palisade.metastore.errors import InvalidRequest
from palisade.metastore.requests import WatchRequest
from palisade.service.key_values import KeyValues
from palisade.service.watches import ProgressReport
from palisade.wire.stream_frames import FrameKind

PROGRESS_MS_MIN = 50

Write = Callable[[FrameKind, Any], None]


class StreamWatch:
    """`credit`: how many batches the client has room for."""

    def __init__(self, number: int, credit: int) -> None:
        self.number = number
        self._credit = credit
        self._granted = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def grant(self, batches: int) -> None:
        self._credit += batches
        self._granted.set()

    async def run(
        self,
        service: KeyValues,
        request: WatchRequest,
        progress_s: float | None,
        write: Write,
        writable: asyncio.Event,
        reauthorize: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Runs until cancelled. Raises Compacted, InvalidRequest, and the errors of `reauthorize`, which is called
        first and before each frame. If the history changes, a WATCHING frame with the new history precedes its events:
        a node that has just joined has no history yet, and the survivor of a lost majority continues in a new
        generation."""
        if reauthorize is not None:
            await reauthorize()
        watching = service.watch(request, progress_s=progress_s)
        try:
            history = history_of(service)
            write(FrameKind.WATCHING, [self.number, watching.next_revision, history])
            while True:
                await self._room(writable)
                start = watching.next_revision
                found = await watching.next()
                if reauthorize is not None:
                    await reauthorize()
                sent, history = history, history_of(service)
                if history != sent:
                    write(FrameKind.WATCHING, [self.number, start, history])
                if isinstance(found, ProgressReport):
                    write(FrameKind.PROGRESS, [self.number, found.revision])
                else:
                    self._credit -= 1
                    write(FrameKind.EVENTS, [self.number, [(batch.revision, batch.events) for batch in found]])
        finally:
            watching.close()

    async def _room(self, writable: asyncio.Event) -> None:
        await writable.wait()
        while self._credit <= 0:
            self._granted.clear()
            await self._granted.wait()


def history_of(service: KeyValues) -> list[Any] | None:
    """[cluster id, generation]; None if the store belongs to no cluster yet. The log knows a new generation before the
    store does: on the survivor of a lost majority before it has applied entries that only it had, and on a member that
    joins a newer generation."""
    lineage = service.store.lineage
    generation = max(lineage.generation, service.group.generation)
    return [lineage.cluster_id, generation] if lineage.cluster_id else None


def read_watch(body: Any) -> tuple[int, WatchRequest, float | None, int]:
    """(number, request, seconds between progress notifications or None, credit) of a WATCH frame.

    Raises InvalidRequest if it is malformed.
    """
    if type(body) is not list or len(body) != 8:
        raise InvalidRequest("a WATCH frame has 8 fields")
    number, key, range_end, start, prev_kv, filters, progress_ms, credit = body
    typed = (
        all(type(each) is int for each in (number, start, progress_ms, credit))
        and all(type(each) is bytes for each in (key, range_end))
        and type(prev_kv) is bool
        and type(filters) is list
        and all(type(each) is str for each in filters)
    )
    if not typed or number < 0:
        raise InvalidRequest("a field of a WATCH frame has the wrong type")
    if credit < 0:
        raise InvalidRequest(f"watch {number}: invalid credit of {credit} batches; it must be 0 or more")
    request = WatchRequest(key, range_end, start, prev_kv, bool(progress_ms), frozenset(filters))
    return number, request, max(progress_ms, PROGRESS_MS_MIN) / 1000 if progress_ms else None, credit
