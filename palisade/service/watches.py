"""A watch that can be awaited. It buffers no events: each is read from the store on demand.

Thus a slow consumer occupies no memory, delays no other, and misses nothing. If compaction overtakes it, it gets MM in
an error (M4).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from palisade.base.metrics import Metrics
from palisade.metastore.requests import WatchRequest
from palisade.metastore.results import RevisionEvents
from palisade.metastore.watch import WatchHub

POLL_REVISIONS_MAX = 500
POLL_BYTES_MAX = 256 * 1024


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """Every event up to `revision` that matches the watch was returned."""

    revision: int


class Watching:
    """`progress_s`: after how long without events `next` returns a ProgressReport; None for never."""

    def __init__(
        self, hub: WatchHub, request: WatchRequest, metrics: Metrics, *, progress_s: float | None = None
    ) -> None:
        self._news = asyncio.Event()
        self.revision = hub.revision
        """The latest revision of the store when the watch began."""
        self._watcher = hub.open(request, self._news.set)
        self._metrics = metrics
        self._progress_s = progress_s
        self._closed = False
        metrics.watchers += 1

    @property
    def next_revision(self) -> int:
        """Where a watch that continues this one has to start."""
        return self._watcher.next_revision

    @property
    def progress(self) -> ProgressReport:
        return ProgressReport(self._watcher.progress)

    def poll(self) -> tuple[RevisionEvents, ...]:
        """The events available now; an empty result does not mean end of stream. Raises Compacted."""
        return self._watcher.poll(POLL_REVISIONS_MAX, POLL_BYTES_MAX)

    async def next(self) -> tuple[RevisionEvents, ...] | ProgressReport:
        """Wait for the next events. Raises Compacted."""
        while True:
            self._news.clear()
            events = self.poll()
            if events:
                self._metrics.events += len(events)
                return events
            if not self._watcher.sleeping:
                await asyncio.sleep(0)
                continue
            try:
                async with asyncio.timeout(self._progress_s):
                    await self._news.wait()
            except TimeoutError:
                return self.progress

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._watcher.close()
            self._metrics.watchers -= 1
