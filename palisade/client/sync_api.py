"""The operations of a store as blocking calls: `StoreApi` for programs that do not use asyncio.

`SyncClient` and `SyncLocalStore` run the asynchronous store in an event loop in its own thread, so a slow
callback or the close of one does not delay another.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

from palisade.base.content import Content
from palisade.client.claims import TTL_S, Lock
from palisade.client.loop_thread import LoopThread
from palisade.client.pair_feed import Pair, PairFeed
from palisade.client.realtime import RealtimeWriter
from palisade.client.request_check import each
from palisade.client.store_api import StoreApi
from palisade.client.sync_claims import SyncClaim, SyncLeadership, SyncLease
from palisade.client.sync_realtime import SyncRealtimeWriter
from palisade.client.sync_watch import SyncWatch
from palisade.client.watch_handle import WatchHandle
from palisade.metastore.results import KeyValue

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def documented_as(method: Callable[..., Any]) -> Callable[[F], F]:
    """Copies the docstring of a method."""

    def documented(function: F) -> F:
        function.__doc__ = method.__doc__
        return function

    return documented


def blocking(
    method: Callable[Concatenate[StoreApi, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncApi, P], T]:
    """The method of `StoreApi`, with its parameters, docstring and errors, as a blocking method."""

    @functools.wraps(method)
    def call(self: SyncApi, /, *arguments: P.args, **named: P.kwargs) -> T:
        return self._running().run(method(self._api, *arguments, **named))

    return call


def for_with(
    method: Callable[Concatenate[StoreApi, P], RealtimeWriter],
) -> Callable[Concatenate[SyncApi, P], SyncRealtimeWriter]:
    """The method of `StoreApi` that makes a writer, with its parameters, docstring and errors, for `with`."""

    @functools.wraps(method)
    def make(self: SyncApi, /, *arguments: P.args, **named: P.kwargs) -> SyncRealtimeWriter:
        return SyncRealtimeWriter(method(self._api, *arguments, **named), self._running())

    return make


class SyncApi(ABC):
    """Threads may share it, and any number of calls may be in flight. Ctrl-C ends a waiting call; the write that it
    interrupts may still be applied."""

    _api: StoreApi

    @abstractmethod
    def _running(self) -> LoopThread:
        """The thread of the event loop. Raises ClientClosed."""

    # Keys.

    put = blocking(StoreApi.put)
    get = blocking(StoreApi.get)
    range = blocking(StoreApi.range)
    delete = blocking(StoreApi.delete)
    txn = blocking(StoreApi.txn)

    @documented_as(StoreApi.put_many)
    def put_many(
        self,
        items: Iterable[Pair],
        *,
        outstanding: int = 1024,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        def consume(pairs: AsyncIterator[Pair], counted: Callable[[int], None]) -> Coroutine[Any, Any, int]:
            return self._api.put_many(pairs, outstanding=outstanding, progress=counted)

        each("items", items, "pairs (key, value)")
        return PairFeed(self._running(), progress).run(consume, items)

    copy_chunk = blocking(StoreApi.copy_chunk)
    compact = blocking(StoreApi.compact)

    @documented_as(StoreApi.watch)
    def watch(
        self,
        key: Content,
        range_end: Content = b"",
        *,
        prefix: bool = False,
        start_revision: int = 0,
        prev_kv: bool = False,
        filters: Iterable[str] = (),
        progress_s: float | None = None,
    ) -> SyncWatch:
        thread = self._running()

        async def begin() -> WatchHandle:
            return self._api.watch(
                key,
                range_end,
                prefix=prefix,
                start_revision=start_revision,
                prev_kv=prev_kv,
                filters=filters,
                progress_s=progress_s,
            )

        return SyncWatch(thread.run(begin()), thread, self)

    # Leases.

    lease_grant = blocking(StoreApi.lease_grant)
    lease_keep_alive = blocking(StoreApi.lease_keep_alive)
    lease_revoke = blocking(StoreApi.lease_revoke)
    lease_info = blocking(StoreApi.lease_info)
    leases = blocking(StoreApi.leases)

    @documented_as(StoreApi.lease)
    def lease(self, ttl_s: float) -> SyncLease:
        return SyncLease(self._api.lease(ttl_s), self._running())

    # Locks and elections (docs/locks.md).

    @documented_as(StoreApi.lock)
    def lock(self, name: Content, *, ttl_s: float = TTL_S, timeout_s: float | None = None) -> SyncClaim[Lock]:
        claim = self._api.lock(name, ttl_s=ttl_s, timeout_s=timeout_s)
        return SyncClaim(claim, self._running())

    @documented_as(StoreApi.campaign)
    def campaign(
        self, name: Content, value: Content, *, ttl_s: float = TTL_S, timeout_s: float | None = None
    ) -> SyncLeadership:
        claim = self._api.campaign(name, value, ttl_s=ttl_s, timeout_s=timeout_s)
        return SyncLeadership(claim, self._running())

    leader = blocking(StoreApi.leader)

    @documented_as(StoreApi.observe)
    def observe(self, name: Content) -> Iterator[KeyValue | None]:
        thread, holders = self._running(), self._api.observe(name)

        async def following() -> KeyValue | None:
            return await anext(holders)

        while True:
            yield thread.run(following())

    # The cluster.

    ping = blocking(StoreApi.ping)
    status = blocking(StoreApi.status)
    members = blocking(StoreApi.members)
    topology = blocking(StoreApi.topology)
    fencing = blocking(StoreApi.fencing)
    regions = blocking(StoreApi.regions)
    region_set = blocking(StoreApi.region_set)
    region_change = blocking(StoreApi.region_change)
    region_delete = blocking(StoreApi.region_delete)
    member_add = blocking(StoreApi.member_add)
    member_promote = blocking(StoreApi.member_promote)
    member_remove = blocking(StoreApi.member_remove)
    transfer = blocking(StoreApi.transfer)
    digest = blocking(StoreApi.digest)
    disarm_alarm = blocking(StoreApi.disarm_alarm)

    # Scans of many rows.

    scan_counts = blocking(StoreApi.scan_counts)
    scan_windows = blocking(StoreApi.scan_windows)
    scan_rows = blocking(StoreApi.scan_rows)
    scan_changes = blocking(StoreApi.scan_changes)
    scan_since = blocking(StoreApi.scan_since)
    scan_bytes = blocking(StoreApi.scan_bytes)
    pin = blocking(StoreApi.pin)
    unpin = blocking(StoreApi.unpin)

    # The catalog.

    catalog_do = blocking(StoreApi.catalog_do)
    catalog_objects = blocking(StoreApi.catalog_objects)
    catalog_object = blocking(StoreApi.catalog_object)
    procedures = blocking(StoreApi.procedures)
    procedure = blocking(StoreApi.procedure)
    procedure_cancel = blocking(StoreApi.procedure_cancel)

    # Segments.

    realtime = for_with(StoreApi.realtime)
    segments_lookup = blocking(StoreApi.segments_lookup)
    segments_list = blocking(StoreApi.segments_list)
    segment = blocking(StoreApi.segment)
    segments_publish = blocking(StoreApi.segments_publish)
    segments_replace = blocking(StoreApi.segments_replace)
    segments_records = blocking(StoreApi.segments_records)
    segments_mark_unused = blocking(StoreApi.segments_mark_unused)
    segments_set_replicas = blocking(StoreApi.segments_set_replicas)
    segments_reset_loaded = blocking(StoreApi.segments_reset_loaded)
    realtime_close = blocking(StoreApi.realtime_close)
    realtime_closed = blocking(StoreApi.realtime_closed)
    realtime_give_up = blocking(StoreApi.realtime_give_up)
    realtime_given_up = blocking(StoreApi.realtime_given_up)
    segments_txn = blocking(StoreApi.segments_txn)
    segments_announce = blocking(StoreApi.segments_announce)
    segments_lease = blocking(StoreApi.segments_lease)
