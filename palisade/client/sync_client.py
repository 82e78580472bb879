"""The client of a cluster for programs that do not use asyncio: `Client` with blocking calls.

Each `SyncClient` runs a `Client` in an event loop in its own thread, so a slow callback or the close of one client does
not delay another. The requests of all threads are pipelined on one connection.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from palisade.base.content import Content
from palisade.client.claims import TTL_S, Lock
from palisade.client.client import Client
from palisade.client.client_closed import ClientClosed
from palisade.client.endpoints import EndpointsLike
from palisade.client.loop_thread import LoopThread
from palisade.client.pair_feed import Pair, PairFeed
from palisade.client.realtime import RealtimeWriter
from palisade.client.recording_files import Recording
from palisade.client.sync_claims import SyncClaim, SyncLeadership, SyncLease
from palisade.client.sync_realtime import SyncRealtimeWriter
from palisade.client.sync_watch import SyncWatch
from palisade.client.watch import Watch
from palisade.metastore.results import KeyValue
from palisade.wire.credentials import Credentials

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
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncClient, P], T]:
    """The method of `Client`, with its parameters, docstring and errors, as a blocking method."""

    @functools.wraps(method)
    def call(self: SyncClient, /, *arguments: P.args, **named: P.kwargs) -> T:
        return self._running().run(method(self._client, *arguments, **named))

    return call


def for_with(
    method: Callable[Concatenate[Client, P], RealtimeWriter],
) -> Callable[Concatenate[SyncClient, P], SyncRealtimeWriter]:
    """The method of `Client` that makes a writer, with its parameters, docstring and errors, for `with`."""

    @functools.wraps(method)
    def make(self: SyncClient, /, *arguments: P.args, **named: P.kwargs) -> SyncRealtimeWriter:
        return SyncRealtimeWriter(method(self._client, *arguments, **named), self._running())

    return make


class SyncClient:
    """Threads may share it, and any number of requests may be in flight. Each is retried safely until its deadline,
    across reconnections and changes of leader. Ctrl-C ends a waiting call; the write that it interrupts may
    still be applied.

    It connects at its first call, or when its `with` is entered. Call `close`, or leave its `with`, after use. A client
    created before a fork belongs to the child if it was not used before; else calls in the child raise RuntimeError.

    The parameters are those of `Client`.
    """

    def __init__(
        self,
        endpoints: EndpointsLike,
        *,
        timeout_s: float = 5.0,
        client_id: str | None = None,
        exactly_once: bool = True,
        follow_leader: bool = True,
        credentials: Credentials | None = None,
        wait_for_nodes: bool = True,
        record: str | Path | Recording | None = None,
    ) -> None:
        self._client = Client(
            endpoints,
            timeout_s=timeout_s,
            client_id=client_id,
            exactly_once=exactly_once,
            follow_leader=follow_leader,
            credentials=credentials,
            wait_for_nodes=wait_for_nodes,
            record=record,
        )
        self._opening = threading.Lock()
        self._thread: LoopThread | None = None
        self._closed = False

    def open(self) -> None:
        """Start to connect. The first call does this as well."""
        self._running()

    def close(self) -> None:
        """End waiting calls with Unavailable or OutcomeUnknown, and the connection. May be called again."""
        with self._opening:
            self._closed = True
            thread = self._thread
        if thread is not None:
            thread.stop()

    def __enter__(self) -> SyncClient:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _running(self) -> LoopThread:
        """The thread of this client; the first call starts it."""
        return self._thread or self._started()

    def _started(self) -> LoopThread:
        with self._opening:
            if self._closed:
                raise ClientClosed("the client is closed; create a new one")
            if self._thread is None:
                thread = LoopThread(self._client.__aenter__, self._client.close, "palisade-client")
                weakref.finalize(self, thread.stop, 0.0).atexit = False
                self._thread = thread
            return self._thread

    # Keys.

    put = blocking(Client.put)
    get = blocking(Client.get)
    range = blocking(Client.range)
    delete = blocking(Client.delete)
    txn = blocking(Client.txn)
    copy_chunk = blocking(Client.copy_chunk)
    compact = blocking(Client.compact)

    @documented_as(Client.put_many)
    def put_many(
        self,
        items: Iterable[Pair],
        *,
        outstanding: int = 1024,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        def consume(pairs: AsyncIterator[Pair], counted: Callable[[int], None]) -> Coroutine[Any, Any, int]:
            return self._client.put_many(pairs, outstanding=outstanding, progress=counted)

        return PairFeed(self._running(), progress).run(consume, items)

    @documented_as(Client.watch)
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

        async def begin() -> Watch:
            watch = self._client.watch(
                key,
                range_end,
                prefix=prefix,
                start_revision=start_revision,
                prev_kv=prev_kv,
                filters=filters,
                progress_s=progress_s,
            )
            return cast(Watch, watch)

        return SyncWatch(thread.run(begin()), thread, self)

    # Leases.

    lease_grant = blocking(Client.lease_grant)
    lease_keep_alive = blocking(Client.lease_keep_alive)
    lease_revoke = blocking(Client.lease_revoke)
    lease_info = blocking(Client.lease_info)
    leases = blocking(Client.leases)

    @documented_as(Client.lease)
    def lease(self, ttl_s: float) -> SyncLease:
        return SyncLease(self._client.lease(ttl_s), self._running())

    # Locks and elections (docs/locks.md).

    @documented_as(Client.lock)
    def lock(self, name: Content, *, ttl_s: float = TTL_S, timeout_s: float | None = None) -> SyncClaim[Lock]:
        claim = self._client.lock(name, ttl_s=ttl_s, timeout_s=timeout_s)
        return SyncClaim(claim, self._running())

    @documented_as(Client.campaign)
    def campaign(
        self, name: Content, value: Content, *, ttl_s: float = TTL_S, timeout_s: float | None = None
    ) -> SyncLeadership:
        claim = self._client.campaign(name, value, ttl_s=ttl_s, timeout_s=timeout_s)
        return SyncLeadership(claim, self._running())

    leader = blocking(Client.leader)

    @documented_as(Client.observe)
    def observe(self, name: Content) -> Iterator[KeyValue | None]:
        thread, holders = self._running(), self._client.observe(name)

        async def following() -> KeyValue | None:
            return await anext(holders)

        while True:
            yield thread.run(following())

    # The cluster.

    ping = blocking(Client.ping)
    status = blocking(Client.status)
    members = blocking(Client.members)
    topology = blocking(Client.topology)
    fencing = blocking(Client.fencing)
    regions = blocking(Client.regions)
    region_set = blocking(Client.region_set)
    region_change = blocking(Client.region_change)
    region_delete = blocking(Client.region_delete)
    member_add = blocking(Client.member_add)
    member_promote = blocking(Client.member_promote)
    member_remove = blocking(Client.member_remove)
    transfer = blocking(Client.transfer)
    digest = blocking(Client.digest)
    disarm_alarm = blocking(Client.disarm_alarm)

    # Scans of many rows.

    scan_counts = blocking(Client.scan_counts)
    scan_windows = blocking(Client.scan_windows)
    scan_rows = blocking(Client.scan_rows)
    scan_changes = blocking(Client.scan_changes)
    scan_since = blocking(Client.scan_since)
    scan_bytes = blocking(Client.scan_bytes)
    pin = blocking(Client.pin)
    unpin = blocking(Client.unpin)

    # The catalog.

    catalog_do = blocking(Client.catalog_do)
    catalog_objects = blocking(Client.catalog_objects)
    catalog_object = blocking(Client.catalog_object)
    procedures = blocking(Client.procedures)
    procedure = blocking(Client.procedure)
    procedure_cancel = blocking(Client.procedure_cancel)

    # Segments.

    realtime = for_with(Client.realtime)
    segments_lookup = blocking(Client.segments_lookup)
    segments_list = blocking(Client.segments_list)
    segment = blocking(Client.segment)
    segments_publish = blocking(Client.segments_publish)
    segments_replace = blocking(Client.segments_replace)
    segments_records = blocking(Client.segments_records)
    segments_mark_unused = blocking(Client.segments_mark_unused)
    segments_set_replicas = blocking(Client.segments_set_replicas)
    segments_reset_loaded = blocking(Client.segments_reset_loaded)
    realtime_close = blocking(Client.realtime_close)
    realtime_give_up = blocking(Client.realtime_give_up)
    realtime_given_up = blocking(Client.realtime_given_up)
    segments_txn = blocking(Client.segments_txn)
    segments_announce = blocking(Client.segments_announce)
    segments_lease = blocking(Client.segments_lease)


def connect(
    endpoints: EndpointsLike,
    *,
    timeout_s: float = 5.0,
    client_id: str | None = None,
    exactly_once: bool = True,
    follow_leader: bool = True,
    credentials: Credentials | None = None,
    record: str | Path | Recording | None = None,
) -> SyncClient:
    """A `SyncClient` that has reached a node: `connect("127.0.0.1:7601")`, or several addresses in any order.

    It blocks, like `connect` of sqlite3 or psycopg; asyncio programs use `async with Client(...)`. Raises ValueError
    for an endpoint that is not an address, Unavailable if no node responds within `timeout_s`, Unauthenticated if the
    credentials are refused.
    """
    client = SyncClient(
        endpoints,
        timeout_s=timeout_s,
        client_id=client_id,
        exactly_once=exactly_once,
        follow_leader=follow_leader,
        credentials=credentials,
        record=record,
    )
    try:
        client.ping()
    except BaseException:
        client.close()
        raise
    return client
