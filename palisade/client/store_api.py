"""The operations of a store, whether it is reached over the network or runs in the same process.

`client.Client` and `node.embedded.LocalStore` implement the abstract methods; everything else is written here once.
Keys and values are bytes; text is encoded as UTF-8. Writes are executed exactly once. Refusals are errors of
`metastore.errors`; Unavailable (nothing was done) and OutcomeUnknown are errors of `raftgroup.errors`.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from dataclasses import replace
from typing import Any, Unpack

from palisade.base.content import Content, as_bytes
from palisade.base.interval import check_interval
from palisade.client.bulk_puts import Many
from palisade.client.claims import TTL_S, Leadership, Lock, leader_of, observe, prefix_of
from palisade.client.lease import Lease
from palisade.client.operations import Operation, interval, plain_txn
from palisade.client.range_options import RangeOptions
from palisade.client.request_check import checked, each, pair_of, whole
from palisade.client.scan_api import ScanApi
from palisade.client.segments_api import SegmentsApi
from palisade.client.watch_handle import WatchHandle
from palisade.metastore.digest import StoreDigest
from palisade.metastore.requests import (
    Command,
    Compact,
    Compare,
    CopyChunk,
    DeleteRange,
    DisarmAlarm,
    LeaseGrant,
    LeaseKeepAlive,
    LeaseRevoke,
    Put,
    Range,
    WatchRequest,
    ttl_ms_of,
)
from palisade.metastore.results import (
    CompactResult,
    DeleteRangeResult,
    DoneResult,
    KeyValue,
    LeaseInfo,
    LeaseResult,
    PutResult,
    RangeResult,
    TxnResult,
)

PART_KEYS = 50_000


def _part_of(request: Range) -> Range:
    """The request with a limit of at most `PART_KEYS`, if it can be read in parts: in key order, without filters. A
    request for the count must have a limit already; adding one would make the store count the keys beyond it."""
    if request.exact_count and request.limit <= 0:
        return request
    part = Range(
        request.key,
        request.range_end,
        min(request.limit or PART_KEYS, PART_KEYS),
        request.revision,
        serializable=request.serializable,
        keys_only=request.keys_only,
        exact_count=request.exact_count,
    )
    return part if replace(part, limit=request.limit) == request else request


class StoreApi(ScanApi, SegmentsApi):
    """`timeout_s` of a call: its deadline; None for the default of the store."""

    @abstractmethod
    async def _write(self, request: Command, timeout_s: float | None = None) -> Any:
        """The result of a command, executed exactly once."""

    async def _put(self, key: bytes, value: bytes, timeout_s: float | None) -> PutResult:
        """A put without options. Implementations may use a shorter way than `_write`."""
        result: PutResult = await self._write(Put(key, value), timeout_s)
        return result

    @abstractmethod
    async def _read(self, request: Range, timeout_s: float | None = None) -> RangeResult:
        """A range, linearizable unless it is serializable; may end early, with `more`."""

    @abstractmethod
    def _watch(self, request: WatchRequest, progress_s: float | None) -> WatchHandle: ...

    # Keys.

    async def put(
        self,
        key: Content,
        value: Content = b"",
        *,
        lease: int = 0,
        prev_kv: bool = False,
        ignore_value: bool = False,
        ignore_lease: bool = False,
        timeout_s: float | None = None,
    ) -> PutResult:
        key, value = as_bytes(key), as_bytes(value)
        check_interval("timeout_s", timeout_s)
        if not (lease or prev_kv or ignore_value or ignore_lease):
            return await self._put(key, value, timeout_s)
        request = checked(Put(key, value, lease, prev_kv, ignore_value, ignore_lease))
        result: PutResult = await self._write(request, timeout_s)
        return result

    async def get(self, key: Content, *, revision: int = 0, serializable: bool = False) -> KeyValue | None:
        """The key at `revision` (0: now); None if it does not exist."""
        if revision != 0:
            whole("revision", revision)
        found = await self._read(Range(as_bytes(key), revision=revision, serializable=serializable))
        return found.kvs[0] if found.kvs else None

    async def range(
        self,
        key: Content,
        range_end: Content = b"",
        *,
        prefix: bool = False,
        timeout_s: float | None = None,
        **options: Unpack[RangeOptions],
    ) -> RangeResult:
        """[key, range_end), or all keys with the prefix `key`; all of one revision, whatever the size.

        `options`: limit, revision, sort_order, sort_target, serializable, keys_only, count_only, min_mod_revision,
        max_mod_revision, min_create_revision, max_create_revision; see `RangeOptions`.
        """
        request = self._range_request(key, range_end, prefix, timeout_s, options)
        first = page = await self._read(request, timeout_s)
        kvs = list(first.kvs)
        async for page in self._further_pages(request, first, timeout_s):
            kvs += page.kvs
        return first if page is first else RangeResult(first.revision, tuple(kvs), page.more, first.count)

    async def range_pages(
        self,
        key: Content,
        range_end: Content = b"",
        *,
        prefix: bool = False,
        timeout_s: float | None = None,
        **options: Unpack[RangeOptions],
    ) -> AsyncIterator[RangeResult]:
        """As `range`, in the parts in which the store sends it, at least one. All are of the revision of the first one,
        which alone has the `count`. A failure ends the iteration after some parts. `timeout_s`: of each part. With a
        limit, or with `exact_count` False, a part in key order has at most `PART_KEYS` keys.
        """
        request = self._range_request(key, range_end, prefix, timeout_s, options)
        first = await self._read(_part_of(request), timeout_s)
        yield first
        async for page in self._further_pages(request, first, timeout_s, _part_of):
            yield page

    def _range_request(
        self, key: Content, range_end: Content, prefix: bool, timeout_s: float | None, options: RangeOptions
    ) -> Range:
        for name in options.keys() - RangeOptions.__annotations__.keys():
            raise TypeError(f"range() got an unexpected keyword argument {name!r}")
        request = Range(*interval(key, range_end, prefix), **options)
        check_interval("timeout_s", timeout_s)
        return checked(request) if options else request

    async def _further_pages(
        self,
        request: Range,
        first: RangeResult,
        timeout_s: float | None,
        part_of: Callable[[Range], Range] = lambda request: request,
    ) -> AsyncIterator[RangeResult]:
        """The store ends a long response early; the rest is read at the same revision."""
        page, received = first, len(first.kvs)
        while page.more and page.kvs and not (0 < request.limit <= received):
            rest = replace(
                request,
                key=page.kvs[-1].key + b"\0",
                revision=request.revision or first.revision,
                limit=request.limit - received if request.limit > 0 else 0,
                exact_count=False,
            )
            page = await self._read(part_of(rest), timeout_s)
            received += len(page.kvs)
            yield page

    async def delete(
        self,
        key: Content,
        range_end: Content = b"",
        *,
        prefix: bool = False,
        prev_kv: bool = False,
        timeout_s: float | None = None,
    ) -> DeleteRangeResult:
        """Delete the key, [key, range_end), or all keys with the prefix `key`, in one revision.

        The nodes execute it in one step and answer nothing else meanwhile. To delete more than about 10,000 keys,
        delete several ranges, as `palisade del` does: 200,000 keys in one request take long enough for an election.
        """
        request = DeleteRange(*interval(key, range_end, prefix), prev_kv)
        check_interval("timeout_s", timeout_s)
        result: DeleteRangeResult = await self._write(request, timeout_s)
        return result

    async def txn(
        self,
        compare: Iterable[Compare] = (),
        success: Iterable[Operation] = (),
        failure: Iterable[Operation] = (),
        *,
        timeout_s: float | None = None,
    ) -> TxnResult:
        """`success` if every compare holds, else `failure`; all writes share one revision."""
        check_interval("timeout_s", timeout_s)
        result: TxnResult = await self._write(checked(plain_txn(compare, success, failure)), timeout_s)
        return result

    async def put_many(
        self,
        items: Iterable[tuple[Content, Content]] | AsyncIterable[tuple[Content, Content]],
        *,
        outstanding: int = 1024,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Put every pair, at most `outstanding` at a time; returns their number. Raises the first error.

        This is the fastest way to write many keys. `progress` is called with the number of completed puts from time to
        time and at the end. Pairs of one key are written in order unless a connection breaks or the leader changes.
        """
        if outstanding < 1:
            raise ValueError(f"outstanding must be at least 1, not {outstanding}")
        many = Many(asyncio.get_running_loop(), outstanding, progress)
        try:
            await self._room_for(many)
            if isinstance(items, AsyncIterable):
                async for item in items:
                    key, value = item if type(item) is tuple and len(item) == 2 else pair_of(item)
                    if not self._put_one_of(many, key, value):
                        await self._room_for(many)
            else:
                for item in each("items", items, "pairs (key, value)"):
                    key, value = item if type(item) is tuple and len(item) == 2 else pair_of(item)
                    if not self._put_one_of(many, key, value):
                        await self._room_for(many)
            await many.all_done()
        finally:
            many.close()
        return many.ended

    @abstractmethod
    def _put_one_of(self, many: Many, key: Content, value: Content) -> bool:
        """Begin a put whose result goes to `many`. Returns whether another one may begin."""

    async def _room_for(self, many: Many) -> None:
        """Wait until another put may begin. Raises the first error of `many`."""
        await many.room()

    async def copy_chunk(self, request: CopyChunk) -> DoneResult:
        """Write the rows of a staged chunk to their keys (`metastore.staged_rows`); `count` of them were written."""
        result: DoneResult = await self._write(request)
        return result

    async def compact(self, revision: int) -> CompactResult:
        """Discard the history below `revision`."""
        result: CompactResult = await self._write(checked(Compact(revision)))
        return result

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
    ) -> WatchHandle:
        """Every change from `start_revision` on (0: from now), in order, without gaps or duplicates.

        `filters`: "put" and/or "delete" events are omitted. `progress_s`: the interval of progress notifications.
        """
        start, end = interval(key, range_end, prefix)
        check_interval("progress_s", progress_s)
        omitted = frozenset(each("filters", filters, "names"))
        request = WatchRequest(start, end, start_revision, prev_kv, progress_s is not None, omitted)
        return self._watch(checked(request), progress_s)

    # Leases.

    async def lease_grant(self, ttl_s: float, id: int = 0) -> LeaseResult:  # noqa: A002
        """A lease that expires `ttl_s` seconds (0.1 or more) after its last keep-alive; its keys are deleted with it.

        `lease` keeps one alive by itself.
        """
        result: LeaseResult = await self._write(checked(LeaseGrant(ttl_ms_of(ttl_s), id)))
        return result

    async def lease_keep_alive(self, lease: int) -> LeaseResult:
        result: LeaseResult = await self._write(checked(LeaseKeepAlive(lease)))
        return result

    async def lease_revoke(self, lease: int) -> LeaseResult:
        result: LeaseResult = await self._write(checked(LeaseRevoke(lease)))
        return result

    async def lease_info(self, lease: int) -> LeaseInfo:
        whole("lease", lease)
        revision, id_, ttl_ms, granted_ttl_ms, keys = await self._call("lease_info", lease)
        return LeaseInfo(revision, id_, ttl_ms, granted_ttl_ms, tuple(keys))

    async def leases(self) -> tuple[int, ...]:
        return tuple(await self._call("leases"))

    def lease(self, ttl_s: float) -> Lease:
        """A lease that renews itself: `async with store.lease(10) as lease: await store.put(k, v, lease=lease.id)`."""
        return Lease(self, ttl_s)

    # Locks and elections (docs/locks.md).

    def lock(self, name: Content, *, ttl_s: float = TTL_S, timeout_s: float | None = None) -> Lock:
        """A lock that at most one claimant holds: `async with store.lock("/locks/compaction") as lock: ...`.

        `ttl_s`: when its holder dies, the lock is free after this time. `timeout_s`: how long to wait for it; 0 does
        not wait. Entering it raises NotAcquired if it was not released in time.
        """
        return Lock(self, name, ttl_s=ttl_s, timeout_s=timeout_s)

    def campaign(
        self, name: Content, value: Content, *, ttl_s: float = TTL_S, timeout_s: float | None = None
    ) -> Leadership:
        """A candidacy for the leadership `name`, as `lock`; the leader announces `value`, for example its address."""
        return Leadership(self, name, value, ttl_s=ttl_s, timeout_s=timeout_s)

    async def leader(self, name: Content) -> KeyValue | None:
        """The leader of an election or the holder of a lock; None if there is none. `create_revision` is its token."""
        return await leader_of(self, prefix_of(name))

    def observe(self, name: Content) -> AsyncIterator[KeyValue | None]:
        """The leader now and after each change, as `leader`; intermediate leaders may be skipped."""
        return observe(self, prefix_of(name))

    # The cluster.

    async def ping(self) -> None:
        """Return once a node has responded."""
        await self._call("ping")

    async def status(self) -> dict[str, Any]:
        """Of the contacted node, its group, and its store; the shape is in docs/http-api.md."""
        status: dict[str, Any] = await self._call("status")
        return status

    async def members(self) -> list[dict[str, Any]]:
        members: list[dict[str, Any]] = await self._call("members")
        return members

    async def topology(self) -> dict[str, Any]:
        """Physical and logical topology, as the contacted node sees them; the shape is in docs/http-api.md."""
        topology: dict[str, Any] = await self._call("topology")
        return topology

    async def fencing(self) -> dict[str, Any]:
        """Which nodes may serve their vault, as the contacted node knows it; the shape is in docs/http-api.md."""
        fencing: dict[str, Any] = await self._call("fencing")
        return fencing

    async def regions(self) -> dict[str, Any]:
        """The regions with their modes and policies; the shape is in docs/http-api.md."""
        regions: dict[str, Any] = await self._call("regions")
        return regions

    async def region_set(self, name: str, packed: bytes) -> int:
        """Create or replace a region, encoded by `vault.regions.pack_region`. Returns its revision once every node
        applies it."""
        revision: int = await self._call("region_set", name, packed)
        return revision

    async def region_change(self, name: str, fields: dict[str, bytes | str]) -> int:
        """Change the given ones of `prefix`, `mode`, `policy` and `default`. Returns the revision once every node
        applies it. Raises KeyNotFound."""
        revision: int = await self._call("region_change", name, fields)
        return revision

    async def region_delete(self, name: str) -> int:
        """Returns the revision once every node applies it. Raises KeyNotFound."""
        revision: int = await self._call("region_delete", name)
        return revision

    async def member_add(self, member: str, incarnation: str, addresses: dict[str, str], *, voter: bool = True) -> None:
        """Add a learner; with `voter` it is promoted once it has caught up."""
        await self._call("member_add", member, incarnation, addresses, voter)

    async def member_promote(self, member: str) -> None:
        await self._call("member_promote", member)

    async def member_remove(self, member: str) -> None:
        await self._call("member_remove", member)

    async def transfer(self, target: str | None = None) -> str:
        """Transfer the leadership; returns the new leader."""
        leader: str = await self._call("transfer", target)
        return leader

    async def digest(self) -> StoreDigest:
        """Of the contacted replica."""
        revision, chain, buckets = await self._call("digest")
        return StoreDigest(revision, chain, buckets)

    async def disarm_alarm(self) -> DoneResult:
        result: DoneResult = await self._write(DisarmAlarm())
        return result
