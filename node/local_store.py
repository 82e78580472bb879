"""The embedded store for asyncio: the only member of a group, without ports (N7)."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from palisade.api.services import NodeServices
from palisade.api.stream.calls import Calls
from palisade.base.clock import SystemClock
from palisade.base.content import Content, as_bytes
from palisade.client.bulk_puts import Many
from palisade.client.store_api import StoreApi
from palisade.metastore.limits import Limits, Retention
from palisade.metastore.lmdb_store import LmdbStore
from palisade.metastore.requests import Command, Put, Range, WatchRequest
from palisade.metastore.results import RangeResult, RevisionEvents
from palisade.metastore.state_machine import MetaStore
from palisade.node.data_dir import claim_data_dir
from palisade.node.data_dir_marker import FolderError
from palisade.node.state_machine_adapter import StoreMachine
from palisade.raftgroup.errors import NodeFailed, Unavailable
from palisade.raftgroup.group import Group
from palisade.raftgroup.group_config import GroupConfig
from palisade.raftgroup.lmdb_journal import LmdbJournal
from palisade.raftgroup.ports import MessageReceiver
from palisade.service.callers import UNRESTRICTED
from palisade.service.catalog import Catalog
from palisade.service.housekeeping import do_leader_duties
from palisade.service.key_values import KeyValues
from palisade.service.watches import ProgressReport, Watching

START_S = 10.0


class NoPeers:
    """The peers of a group of one: none."""

    def send(self, member: str, kind: int, body: Any) -> bool:
        return False

    def queued_bytes(self, member: str) -> int:
        return 0

    def connected(self) -> frozenset[str]:
        return frozenset()

    def answering(self) -> frozenset[str]:
        return frozenset()

    def set_members(self, addresses: dict[str, str]) -> None:
        """There is no peer to connect to."""

    async def start(self, receiver: MessageReceiver) -> None:
        """There is nothing to listen on."""

    async def close(self) -> None:
        """Nothing was opened."""


class LocalStore(StoreApi):
    """Created by `palisade.open`. All calls and watches belong to the event loop that opened it."""

    def __init__(
        self, path: Path, names: tuple[str, str], limits: Limits, retention: Retention, deadline_s: float
    ) -> None:
        cluster, node_id = names
        claim_data_dir(path, cluster=cluster, node=node_id)
        self._path = path
        self._clock = SystemClock()
        self._tasks: list[asyncio.Task[None]] = []
        self._watches: set[LocalWatch] = set()
        self._failure: NodeFailed | None = None
        with contextlib.ExitStack() as undo:
            self._journal = LmdbJournal(path / "raft")
            undo.callback(self._journal.close)
            self._disk = LmdbStore(path / "store")
            undo.callback(self._disk.close)
            store = MetaStore(self._disk, limits, retention)
            self._group = Group(
                GroupConfig(
                    cluster=cluster,
                    member=node_id,
                    addresses={},
                    founders={node_id: {}},
                    terms=limits.fingerprint(),
                ),
                journal=self._journal,
                machine=StoreMachine(store, self._disk),
                peers=NoPeers(),
                clock=self._clock,
                random=random.SystemRandom(),
            )
            undo.pop_all()
        self.key_values = KeyValues(self._group, store, deadline_s=deadline_s)
        self._catalog = Catalog(self.key_values, node_id)
        self._calls = Calls(NodeServices(self.key_values, catalog=self._catalog), cluster)

    async def start(self) -> None:
        """Return when the store can be used."""
        loop = asyncio.get_running_loop()
        self._check_alone()
        await self._group.start()
        for work in (
            self._disk.run(self._clock.now),
            do_leader_duties(self._group, self.key_values.store, self._clock),
            self._catalog.runner.run(),
        ):
            task = loop.create_task(work)
            task.add_done_callback(self._note_failure)
            self._tasks.append(task)
        await self.key_values.barrier(timeout_s=START_S)

    def _check_alone(self) -> None:
        """Raises FolderError for the folder of one of several members: it cannot reach a majority alone."""
        members = [member.id for member in self._group.members.members]
        if len(members) > 1:
            raise FolderError(
                f"{self._path} is the folder of a cluster with the members {', '.join(members)}: start it with "
                "palisade node; only a folder whose node is the only member can be opened"
            )

    def _note_failure(self, task: asyncio.Task[None]) -> None:
        """A failed disk task must not go unnoticed: nothing is answered afterwards."""
        if not task.cancelled() and task.exception() is not None:
            self._failure = NodeFailed(f"the store has stopped: {task.exception()}")
            for watch in list(self._watches):
                watch.end(self._failure)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def stop(self) -> None:
        """End watches, write everything, release the folder. Safe to call in any state."""
        for watch in list(self._watches):
            watch.end(Unavailable("the store was closed"))
        if self._group.failed is not None:
            await self._group.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self._disk.flush()
        finally:
            self._disk.close()
            self._journal.close()

    async def _write(self, request: Command, timeout_s: float | None = None) -> Any:
        self._check()
        return await self.key_values.write(request, timeout_s=timeout_s, caller=UNRESTRICTED)

    def _put_one_of(self, many: Many, key: Content, value: Content) -> bool:
        self._check()
        self.key_values.submit(Put(as_bytes(key), as_bytes(value)), many.take, caller=UNRESTRICTED)
        return many.begin()

    async def _read(self, request: Range, timeout_s: float | None = None) -> RangeResult:
        self._check()
        return await self.key_values.range(request, timeout_s=timeout_s, caller=UNRESTRICTED)

    async def _call(self, name: str, *arguments: Any, timeout_s: float | None = None) -> Any:
        self._check()
        return await self._calls.run(name, list(arguments), timeout_s)

    def _watch(self, request: WatchRequest, progress_s: float | None) -> LocalWatch:
        watch = LocalWatch(self.key_values, request, progress_s, self._watches.discard)
        self._watches.add(watch)
        return watch


class LocalWatch:
    """A watch on a store in this process; see `client.store_api.WatchHandle`."""

    def __init__(self, service: KeyValues, request: WatchRequest, progress_s: float | None, forget: Any) -> None:
        self._forget = forget
        self._ready: deque[RevisionEvents] = deque()
        self._delivered = request.start_revision
        self._error: Exception | None = None
        self._closed = False
        self._ended = asyncio.Event()
        self._watching: Watching | None = None
        try:
            self._watching = service.watch(request, progress_s=progress_s)
        except Exception as error:
            self._error = error

    @property
    def trouble(self) -> str | None:
        """None: no connection can be missing."""
        return None

    @property
    def next_revision(self) -> int:
        if self._delivered or self._watching is None:
            return self._delivered
        return self._watching.next_revision

    def __aiter__(self) -> AsyncIterator[RevisionEvents]:
        return self

    async def __anext__(self) -> RevisionEvents:
        while not self._ready:
            if self._closed:
                raise StopAsyncIteration
            if self._error is not None or self._watching is None:
                raise self._error or StopAsyncIteration
            await self._next(self._watching)
        events = self._ready.popleft()
        self._delivered = events.revision + 1
        return events

    async def _next(self, watching: Watching) -> None:
        """Wait for events or for the end. If the caller is cancelled, events that have arrived are kept for the next
        call."""
        news = asyncio.ensure_future(watching.next())
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait({news, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
            if news.done():
                self._take(news)
            else:
                news.cancel()

    def _take(self, news: asyncio.Future[tuple[RevisionEvents, ...] | ProgressReport]) -> None:
        error = news.exception()
        if error is not None:
            self._error = self._error or (error if isinstance(error, Exception) else None)
            return
        found = news.result()
        self._ready.extend((RevisionEvents(found.revision, ()),) if isinstance(found, ProgressReport) else found)

    def end(self, error: Exception) -> None:
        self._error = self._error or error
        self._release()

    async def aclose(self) -> None:
        self._closed = True
        self._ready.clear()
        self._release()

    def _release(self) -> None:
        self._ended.set()
        if self._watching is not None:
            self._watching.close()
        self._forget(self)

    async def __aenter__(self) -> LocalWatch:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
