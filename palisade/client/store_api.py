"""What users of a store can do with it, whether it is reached over the network or runs in their own process.

`client.Client` and `node.embedded.LocalStore` provide four ways to reach a store; everything else is the same for
both and written here. Keys and values are bytes; text is taken as UTF-8. Writes are exactly-once. Refusals are those
of `metastore.errors`; Unavailable (nothing was done) and OutcomeUnknown are those of `raftgroup.errors`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from typing import Any, Protocol, TypedDict, Unpack

from palisade.client.catalog_api import CatalogApi
from palisade.client.operations import Content, Operation, as_bytes, interval, plain_txn
from palisade.metastore.digest import StoreDigest
from palisade.metastore.requests import (
    Command,
    Compact,
    Compare,
    DeleteRange,
    DisarmAlarm,
    LeaseGrant,
    LeaseKeepAlive,
    LeaseRevoke,
    Put,
    Range,
    SortOrder,
    SortTarget,
    WatchRequest,
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
    RevisionEvents,
    TxnResult,
)


class RangeOptions(TypedDict, total=False):
    """The options of `range`.

    `limit`: return so many keys at most; 0 (the default) is all. `revision`: read at it; 0 (the default) is the newest.
    `sort_order`, `sort_target`: by default in the order of the keys. `serializable`: read what the asked node has,
    without asking the leader. `keys_only`: leave the values out. `count_only`: only count the keys.
    `min_mod_revision`, `max_mod_revision`, `min_create_revision`, `max_create_revision`: leave out keys that were
    changed or created outside these bounds; 0 (the default) is no bound.
    """

    limit: int
    revision: int
    sort_order: SortOrder
    sort_target: SortTarget
    serializable: bool
    keys_only: bool
    count_only: bool
    min_mod_revision: int
    max_mod_revision: int
    min_create_revision: int
    max_create_revision: int


class WatchHandle(Protocol):
    """Iterate it with `async for`; close it, or leave its `async with`, when it is not needed any more.

    Each item holds all events of one revision that the watch asks for. An item without events is a progress
    notification: everything up to its revision was delivered. Raises Compacted when compaction overtakes it.
    """

    @property
    def next_revision(self) -> int:
        """Where another watch has to start to go on after what was delivered."""
        ...

    def __aiter__(self) -> AsyncIterator[RevisionEvents]: ...
    async def __anext__(self) -> RevisionEvents: ...
    async def __aenter__(self) -> WatchHandle: ...
    async def __aexit__(self, *_: object) -> None: ...
    async def aclose(self) -> None: ...


class StoreApi(CatalogApi):
    """`timeout_s` of a call: its deadline; None for the one of the store."""

    @abstractmethod
    async def _write(self, request: Command, timeout_s: float | None = None) -> Any:
        """The result of a command, executed exactly once."""

    async def _put(self, key: bytes, value: bytes, timeout_s: float | None) -> PutResult:
        """The put without options, which most are: who can do it in a shorter way than `_write` does so."""
        result: PutResult = await self._write(Put(key, value), timeout_s)
        return result

    @abstractmethod
    async def _read(self, request: Range, timeout_s: float | None = None) -> RangeResult:
        """A range, linearizable unless it says otherwise; may end early, with `more`."""

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
        if not (lease or prev_kv or ignore_value or ignore_lease):
            return await self._put(key, value, timeout_s)
        result: PutResult = await self._write(Put(key, value, lease, prev_kv, ignore_value, ignore_lease), timeout_s)
        return result

    async def get(self, key: Content, *, revision: int = 0, serializable: bool = False) -> KeyValue | None:
        """The key at `revision` (0: now); None where it does not exist."""
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
        """[key, range_end), or all keys with the prefix `key`; all of one revision, however large it is.

        `options`: limit, revision, sort_order, sort_target, serializable, keys_only, count_only, min_mod_revision,
        max_mod_revision, min_create_revision, max_create_revision; see `RangeOptions`.
        """
        for name in options.keys() - RangeOptions.__annotations__.keys():
            raise TypeError(f"range() got an unexpected keyword argument {name!r}")
        request = Range(*interval(key, range_end, prefix), **options)
        return await self._whole(request, await self._read(request, timeout_s), timeout_s)

    async def _whole(self, request: Range, first: RangeResult, timeout_s: float | None) -> RangeResult:
        """The store ends a long answer early; what is missing is read at the same revision."""
        kvs, page = list(first.kvs), first
        while page.more and page.kvs and not (0 < request.limit <= len(kvs)):
            rest = replace(
                request,
                key=kvs[-1].key + b"\0",
                revision=request.revision or first.revision,
                limit=request.limit - len(kvs) if request.limit > 0 else 0,
                exact_count=False,
            )
            page = await self._read(rest, timeout_s)
            kvs += page.kvs
        return first if page is first else RangeResult(first.revision, tuple(kvs), page.more, first.count)

    async def delete(
        self,
        key: Content,
        range_end: Content = b"",
        *,
        prefix: bool = False,
        prev_kv: bool = False,
        timeout_s: float | None = None,
    ) -> DeleteRangeResult:
        request = DeleteRange(*interval(key, range_end, prefix), prev_kv)
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
        result: TxnResult = await self._write(plain_txn(compare, success, failure), timeout_s)
        return result

    async def compact(self, revision: int) -> CompactResult:
        """Forget the history below `revision`."""
        result: CompactResult = await self._write(Compact(revision))
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
        """Every change from `start_revision` on (0: from now), in order, none missing, none twice.

        `filters`: "put" and/or "delete" events are left out. `progress_s`: how often to say that nothing happened.
        """
        start, end = interval(key, range_end, prefix)
        request = WatchRequest(start, end, start_revision, prev_kv, progress_s is not None, frozenset(filters))
        return self._watch(request, progress_s)

    # Leases.

    async def lease_grant(self, ttl_s: int, id: int = 0) -> LeaseResult:  # noqa: A002
        """A lease that ends `ttl_s` seconds after its last keep-alive; its keys vanish with it."""
        result: LeaseResult = await self._write(LeaseGrant(ttl_s, id))
        return result

    async def lease_keep_alive(self, lease: int) -> LeaseResult:
        result: LeaseResult = await self._write(LeaseKeepAlive(lease))
        return result

    async def lease_revoke(self, lease: int) -> LeaseResult:
        result: LeaseResult = await self._write(LeaseRevoke(lease))
        return result

    async def lease_info(self, lease: int) -> LeaseInfo:
        revision, id_, ttl_s, granted_ttl_s, keys = await self._call("lease_info", lease)
        return LeaseInfo(revision, id_, ttl_s, granted_ttl_s, tuple(keys))

    async def leases(self) -> tuple[int, ...]:
        return tuple(await self._call("leases"))

    # The cluster.

    async def ping(self) -> None:
        """Return when a node has answered."""
        await self._call("ping")

    async def status(self) -> dict[str, Any]:
        """Of the node that is asked, its group, and its store (docs/http-api.md has the shape)."""
        status: dict[str, Any] = await self._call("status")
        return status

    async def members(self) -> list[dict[str, Any]]:
        members: list[dict[str, Any]] = await self._call("members")
        return members

    async def topology(self) -> dict[str, Any]:
        """Physical and logical topology, as the node that is asked sees them (docs/http-api.md has the shape)."""
        topology: dict[str, Any] = await self._call("topology")
        return topology

    async def fencing(self) -> dict[str, Any]:
        """Who may serve from its vault, as the node that is asked knows it (docs/http-api.md has the shape)."""
        fencing: dict[str, Any] = await self._call("fencing")
        return fencing

    async def regions(self) -> dict[str, Any]:
        """What is strict, and what a reader does that must not answer (docs/http-api.md has the shape)."""
        regions: dict[str, Any] = await self._call("regions")
        return regions

    async def region_set(self, name: str, packed: bytes) -> int:
        """Make or change a region, as `vault.regions.pack_region` has it; the revision, once every node knows."""
        revision: int = await self._call("region_set", name, packed)
        return revision

    async def region_change(self, name: str, fields: dict[str, bytes | str]) -> int:
        """Change what is given of `prefix`, `mode`, `policy` and `default`; the revision, once every node knows. Raises
        KeyNotFound."""
        revision: int = await self._call("region_change", name, fields)
        return revision

    async def region_delete(self, name: str) -> int:
        """The revision, once every node knows. Raises KeyNotFound."""
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
        """Hand leadership over; returns who leads then."""
        leader: str = await self._call("transfer", target)
        return leader

    async def digest(self) -> StoreDigest:
        """Of the replica that is asked."""
        revision, chain, buckets = await self._call("digest")
        return StoreDigest(revision, chain, buckets)

    async def disarm_alarm(self) -> DoneResult:
        result: DoneResult = await self._write(DisarmAlarm())
        return result
