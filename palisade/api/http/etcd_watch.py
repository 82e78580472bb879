"""Several watches over one stream, as etcd has them: each with its id, one answer after the other.

Progress is never ahead of events (etcd #15220): a watch counts for a progress answer with what was written of it, not
with what was read from the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from palisade.api.http.etcd_keys import Header
from palisade.api.http.etcd_watch_messages import (
    WatchCancel,
    WatchCreate,
    WatchProgress,
    result_line,
    watch_fields,
)
from palisade.api.http.reauthorize import Reauthorize, permit_all
from palisade.metastore.errors import Compacted
from palisade.metastore.requests import FROM_KEY, WatchRequest
from palisade.metastore.results import RevisionEvents
from palisade.service.authorization.needs import Needs, reading
from palisade.service.key_values import KeyValues
from palisade.service.watches import ProgressReport, Watching
from palisade.wire.auth_errors import AuthorizationError

NO_WATCH = -1
EMPTY_RANGE = "mvcc: watcher range is empty"
DENIED = "rpc error: code = PermissionDenied desc = etcdserver: permission denied"
DUPLICATE_ID = "mvcc: duplicate watch ID provided on the WatchStream"

Write = Callable[[bytes], Awaitable[None]]


class OneWatch:
    """`unwritten_from`: the first revision that was read from the store and is not on the wire yet."""

    def __init__(self, watch_id: int, watching: Watching, needs: Needs) -> None:
        self.id = watch_id
        self.needs = needs
        self.watching = watching
        self.unwritten_from: int | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def written_to(self) -> int:
        if self.unwritten_from is not None:
            return self.unwritten_from - 1
        return self.watching.progress.revision


class WatchStream:
    """`progress_s`: how long a watch that asked for progress notifications may be silent. `reauthorize`: called when
    a watch is created and before each of its events; raises AuthorizationError."""

    def __init__(
        self,
        service: KeyValues,
        header: Header,
        write: Write,
        progress_s: float,
        reauthorize: Reauthorize = permit_all,
    ) -> None:
        self._reauthorize = reauthorize
        self._service = service
        self._header = header
        self._write = write
        self._progress_s = progress_s
        self._watches: dict[int, OneWatch] = {}
        self._next_id = 0

    async def handle(self, asked: WatchCreate | WatchCancel | WatchProgress) -> None:
        if isinstance(asked, WatchCreate):
            await self._create(asked)
        elif isinstance(asked, WatchCancel):
            await self._cancel(asked.watch_id)
        else:
            await self._answer_progress()

    async def close(self) -> None:
        watches, self._watches = list(self._watches.values()), {}
        for watch in watches:
            self._stop(watch)
        tasks = [watch.task for watch in watches if watch.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    def _stop(self, watch: OneWatch) -> None:
        watch.watching.close()
        if watch.task is not None:
            watch.task.cancel()

    # Creating and cancelling.

    async def _create(self, asked: WatchCreate) -> None:
        needs = (reading(asked.watch.key, asked.watch.range_end),)
        refusal = self._refusal(asked) or await self._denied(needs)
        if refusal is not None:
            await self._send(NO_WATCH, self._now(), created=True, canceled=True, cancel_reason=refusal)
            return
        watch_id = asked.watch_id or self._free_id()
        try:
            watching = self._open(asked.watch)
        except Compacted as error:
            await self._send(watch_id, self._now(), created=True)
            await self._send(watch_id, 0, canceled=True, compact_revision=error.minimal_revision)
            return
        watch = self._watches[watch_id] = OneWatch(watch_id, watching, needs)
        await self._send(watch_id, watching.revision, created=True)
        watch.task = asyncio.get_running_loop().create_task(self._run(watch))

    def _refusal(self, asked: WatchCreate) -> str | None:
        end = asked.watch.range_end
        if end and end != FROM_KEY and asked.watch.key >= end:
            return EMPTY_RANGE
        return DUPLICATE_ID if asked.watch_id and asked.watch_id in self._watches else None

    async def _denied(self, needs: Needs) -> str | None:
        try:
            await self._reauthorize(needs)
        except AuthorizationError:
            return DENIED
        return None

    def _open(self, request: WatchRequest) -> Watching:
        start = max(request.start_revision, 1) if request.start_revision else 0
        watch = WatchRequest(
            request.key, request.range_end, start, request.prev_kv, request.progress_notify, request.filters
        )
        return self._service.watch(watch, progress_s=self._progress_s if request.progress_notify else None)

    def _free_id(self) -> int:
        while self._next_id in self._watches:
            self._next_id += 1
        self._next_id += 1
        return self._next_id - 1

    async def _cancel(self, watch_id: int) -> None:
        watch = self._watches.pop(watch_id, None)
        if watch is not None:
            self._stop(watch)
            await self._send(watch_id, self._now(), canceled=True)

    async def _answer_progress(self) -> None:
        written = [watch.written_to for watch in self._watches.values()]
        await self._send(NO_WATCH, min(written, default=self._now()))

    # Events.

    async def _run(self, watch: OneWatch) -> None:
        while True:
            try:
                found = await watch.watching.next()
            except Compacted as error:
                self._watches.pop(watch.id, None)
                watch.watching.close()
                await self._send(watch.id, 0, canceled=True, compact_revision=error.minimal_revision)
                return
            denied = await self._denied(watch.needs)
            if denied is not None:
                self._watches.pop(watch.id, None)
                watch.watching.close()
                await self._send(watch.id, 0, canceled=True, cancel_reason=denied)
                return
            if isinstance(found, ProgressReport):
                await self._send(watch.id, found.revision)
            else:
                await self._send_events(watch, found)

    async def _send_events(self, watch: OneWatch, found: tuple[RevisionEvents, ...]) -> None:
        watch.unwritten_from = found[0].revision
        events = [event for batch in found for event in batch.events]
        header = self._header.text(watch.watching.progress.revision, self._service.group.term)
        await self._write(result_line(watch_fields(header, watch.id, events=events)))
        watch.unwritten_from = None

    async def _send(
        self,
        watch_id: int,
        revision: int,
        *,
        created: bool = False,
        canceled: bool = False,
        compact_revision: int = 0,
        cancel_reason: str = "",
    ) -> None:
        header = self._header.text(revision, self._service.group.term)
        fields = watch_fields(
            header,
            watch_id,
            created=created,
            canceled=canceled,
            compact_revision=compact_revision,
            cancel_reason=cancel_reason,
        )
        await self._write(result_line(fields))

    def _now(self) -> int:
        return self._service.store.revision
