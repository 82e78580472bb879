"""A watch that survives reconnections: it continues after the last revision received, on any node (M4).

No event is missed or repeated.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Protocol

from palisade.metastore.errors import Compacted
from palisade.metastore.requests import WatchRequest
from palisade.metastore.results import Event, KeyValue, RevisionEvents
from palisade.raftgroup.errors import NodeFailed
from palisade.wire.error_codes import error_of
from palisade.wire.stream_frames import WATCH_CREDIT, FrameKind

if TYPE_CHECKING:
    from palisade.client.connection import ClientConnection


class HistoryBroken(Compacted):
    """The cluster was restored from a backup or recovered without a quorum: revisions since then have other content.
    As with any Compacted, read the current state and watch from there; `minimal_revision` is the oldest revision."""


class WatchingSession(Protocol):
    """The part of its session that a watch uses."""

    @property
    def trouble(self) -> str | None: ...
    def forget_watch(self, number: int) -> None: ...
    def leave_failed_node(self, error: NodeFailed) -> None: ...


class Watch:
    """Events that have arrived are buffered until the consumer takes them.

    The node sends at most `WATCH_CREDIT` batches ahead of the consumer, so a slow consumer costs neither side memory.
    """

    def __init__(self, number: int, request: WatchRequest, progress_s: float | None, session: WatchingSession) -> None:
        self._number = number
        self._request = request
        self._progress_s = progress_s
        self._session = session
        self._arriving = request.start_revision
        self._delivered = request.start_revision
        self._batches: deque[deque[RevisionEvents]] = deque()
        self._news = asyncio.Event()
        self._error: Exception | None = None
        self._link: ClientConnection | None = None
        self._closed = False
        self._history: object = None
        """Cluster id and generation, as the first node that knew them announced them."""

    @property
    def next_revision(self) -> int:
        """The `start_revision` of another watch that continues after the delivered events; 0 if none is known yet."""
        return self._delivered or self._arriving

    @property
    def trouble(self) -> str | None:
        """Why no events can arrive at the moment (no connection, no leader); None if silence means no change. The
        watch continues by itself."""
        return self._session.trouble

    # Called by the session.

    def begin(self, link: ClientConnection) -> None:
        """Start or continue over this connection."""
        if self._error is not None:
            return
        self._link = link
        request = self._request
        progress_ms = max(1, int(self._progress_s * 1000)) if self._progress_s else 0
        credit = max(0, WATCH_CREDIT - len(self._batches))
        link.send(
            FrameKind.WATCH,
            [
                self._number,
                request.key,
                request.range_end,
                self._arriving,
                request.prev_kv,
                sorted(request.filters),
                progress_ms,
                credit,
            ],
        )

    def begin_where_none(self, link: ClientConnection) -> None:
        """Start over this connection unless it has started there already."""
        if self._link is None:
            self.begin(link)

    def on_frame(self, kind: int, body: Any) -> None:
        if self._error is not None:
            return
        if kind == FrameKind.EVENTS:
            batch = deque(events_from(*each) for each in body[1])
            self._arriving = batch[-1].revision + 1
            self._batches.append(batch)
        elif kind == FrameKind.WATCHING:
            self._arriving = max(self._arriving, body[1])
            if not self._ends_with_its_history(body[2] if len(body) > 2 else None):
                return
        elif kind == FrameKind.PROGRESS:
            if body[1] + 1 < self._arriving:
                return  # From a node that is behind the previous one.
            self._arriving = max(self._arriving, body[1] + 1)
            if self._batches:
                return
            self._batches.append(deque((RevisionEvents(body[1], ()),)))
        elif kind == FrameKind.WATCH_ENDED:
            error = error_of(*body[1:])
            if isinstance(error, NodeFailed):
                self._session.leave_failed_node(error)
                return
            self._error = error
        self._news.set()

    def _ends_with_its_history(self, its: Any) -> bool:
        """Whether the watch ends with HistoryBroken. `its`: the history of the node at which the watch continues, None
        if unknown."""
        own: Any = self._history or its
        self._history = own
        if its is None or its == own:
            return False
        self._error = HistoryBroken(
            f"the cluster is of generation {its[1]}, this watch of generation {own[1]}: a backup was restored, or "
            "recover-quorum was used, and revisions since then have other content. Read the current state and watch "
            "from there",
            1,
        )
        return True

    @property
    def ended(self) -> bool:
        """Whether it ended with an error, which is raised after the buffered events."""
        return self._error is not None

    def end(self, error: Exception) -> None:
        self._error = self._error or error
        self._news.set()

    # Called by the consumer.

    def __aiter__(self) -> AsyncIterator[RevisionEvents]:
        return self

    async def __anext__(self) -> RevisionEvents:
        while not self._batches:
            if self._closed:
                raise StopAsyncIteration
            if self._error is not None:
                error = self._error
                await self.aclose()
                raise error
            self._news.clear()
            await self._news.wait()
        batch = self._batches[0]
        events = batch.popleft()
        if not batch:
            self._batches.popleft()
            if events.events and self._link is not None:
                self._link.send(FrameKind.MORE, [self._number, 1])
        self._delivered = events.revision + 1
        return events

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._batches.clear()
            self._news.set()
            self._session.forget_watch(self._number)

    async def __aenter__(self) -> Watch:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def events_from(revision: int, events: list[Any]) -> RevisionEvents:
    """From their wire form."""
    return RevisionEvents(revision, tuple(map(event_from, events)))


def event_from(wire: list[Any]) -> Event:
    delete, kv, previous = wire
    return Event(delete, KeyValue._make(kv), KeyValue._make(previous) if previous is not None else None)
