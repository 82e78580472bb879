"""What a node can be asked for, over its group and its store: HTTP, the stream and the embedded store share it.

Every write is checked before anything is proposed, has a deadline, and comes to one of three ends: a result, a
refusal (nothing changed), or OutcomeUnknown. Reads are linearizable unless they ask not to be: a local read after a
read barrier of the group. The errors are those of `metastore.errors` and `raftgroup.errors`, as they are.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from metastore.codec import decode_result, encode_command
from metastore.digest import Digest
from metastore.errors import LeaseNotFound
from metastore.machine import MetaStore
from metastore.requests import Command, Range, RequestId, SortOrder, SortTarget, Txn, WatchRequest
from metastore.results import KeyValue, LeaseInfo, RangeResult, TxnResult
from metastore.validation import check_request, check_request_id, is_read_only
from raftgroup.errors import RaftError
from raftgroup.proposals import Applied
from service.metrics import Metrics
from service.ports import Done, GroupFace, Outcome
from service.retry_check import check_answers
from service.strict_responses import StrictAnswers
from service.watches import Watching

R = TypeVar("R", RangeResult, TxnResult)

PAGE_KEYS_FIRST = 64
PAGE_KEYS_MAX = 1_024
PAGE_BYTES = 512 * 1024
"""About how much is read in one turn of the loop: a large range never delays a heartbeat."""
PAGE_BLOCKS = 500
"""Of events that were looked at, for a read in the past: about six milliseconds."""
SCANS_MAX = 16
"""How many ranges are put together at a time: the others wait, so that their answers fit in memory."""


class KeyValues:
    """`deadline_s` is how long a request may take that does not say so itself."""

    def __init__(
        self,
        group: GroupFace,
        store: MetaStore,
        *,
        deadline_s: float = 5.0,
        metrics: Metrics | None = None,
        strict: StrictAnswers | None = None,
    ) -> None:
        """`strict`: holds answers about strict regions back until they are released; None without fencing."""
        self.group = group
        self.store = store
        self.deadline_s = deadline_s
        self.metrics = metrics or Metrics()
        self.strict = strict
        self._scans = asyncio.Semaphore(SCANS_MAX)

    # Writes.

    def submit(self, request: Command, done: Done, request_id: RequestId | None = None) -> None:
        """Propose, and have `done` called with what it came to. Raises the refusal of what need not be proposed."""
        self._check(request, request_id, own=False)
        if self.strict is not None:
            done = self.strict.held(request, done, self.deadline_s)
        self.submit_encoded(encode_command(request, request_id), done)

    def _check(self, request: Command, request_id: RequestId | None, *, own: bool) -> None:
        check_request(request, self.store.limits)
        if request_id is not None:
            check_request_id(request_id, self.store.limits)
        if self.strict is not None and not own:
            self.strict.check_user(request)

    def submit_encoded(self, command: bytes, done: Done, *, timeout_s: float | None = None) -> None:
        """A command that was checked already, in the encoding of `metastore.codec`."""
        self.group.submit(command, done, timeout_s=timeout_s or self.deadline_s)

    def result_of(self, outcome: Outcome) -> Any:
        """The result of a proposal (metastore.results). Raises what it came to instead."""
        if not isinstance(outcome, Applied):
            if isinstance(outcome, RaftError):
                self.metrics.failed(outcome)
            raise outcome
        self.metrics.applied += 1
        return decode_result(outcome.result)

    async def write(
        self,
        request: Command,
        request_id: RequestId | None = None,
        *,
        timeout_s: float | None = None,
        own: bool = False,
    ) -> Any:
        """The result of a write. A transaction that writes nothing is read where this node stands.

        A write to a strict region is answered when it is released; raises ReleasePending where that is not in time.
        `own`: it may write what is the cluster's own (`palisade/`).
        """
        if isinstance(request, Txn) and request_id is None and is_read_only(request):
            return await self.read_txn(request)
        self._check(request, request_id, own=own)
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        began = self.metrics.now()
        command = encode_command(request, request_id)
        done = _into(outcome)
        if self.strict is not None:
            done = self.strict.held(request, done, timeout_s or self.deadline_s)
        self.submit_encoded(command, done, timeout_s=timeout_s)
        end = await outcome
        self.metrics.write_latency.observe(self.metrics.now() - began)
        result = self.result_of(end)
        if request_id is not None:
            check_answers(result, request, request_id)
        return result

    async def all_released(self, *, timeout_s: float | None = None) -> None:
        """Until every strict change so far is released. Raises Unavailable, ReleasePending."""
        if self.strict is None:
            return
        await self.barrier(timeout_s=timeout_s)
        revision = self.store.revision
        if not await self.strict.released.until(revision, timeout_s or self.deadline_s):
            raise self.strict.late(revision)

    # Reads.

    async def barrier(self, *, timeout_s: float | None = None) -> None:
        """Afterwards a read of the store is linearizable. Raises Unavailable."""
        if not self.group.try_read_barrier():
            await self.group.read_barrier(timeout_s=timeout_s or self.deadline_s)

    async def range(
        self, request: Range, *, timeout_s: float | None = None, bytes_max: int | None = None
    ) -> RangeResult:
        """`bytes_max`: an answer in the order of the keys ends there, with `more`, whatever its limit."""
        check_request(request, self.store.limits)
        if not request.serializable:
            await self.barrier(timeout_s=timeout_s)
        self.metrics.reads += 1
        if not request.range_end or not is_pageable(request):
            pending = self._is_pending(request)
            return await self._seen(self.store.range(request), pending, timeout_s)
        async with self._scans:
            pending = self._is_pending(request)
            return await self._seen(await self._pages(request, bytes_max), pending, timeout_s)

    def _is_pending(self, request: Range) -> bool:
        """Reads of the past, and those that need not be linearizable, show what is committed."""
        linearizable = not request.serializable and request.revision <= 0
        return linearizable and self.strict is not None and self.strict.is_pending(request)

    async def _seen(self, result: R, pending: bool, timeout_s: float | None = None) -> R:
        """Nobody hears of a strict change before it is released: what has seen one waits for it."""
        if pending and self.strict is not None:
            await self.strict.seen(result.revision, timeout_s or self.deadline_s)
        return result

    def range_now(self, request: Range) -> RangeResult | None:
        """The answer to a read of one key, if it takes no waiting; None if `range` has to be awaited."""
        if request.range_end or not (request.serializable or self.group.try_read_barrier()):
            return None
        if self._is_pending(request):
            return None
        check_request(request, self.store.limits)
        self.metrics.reads += 1
        return self.store.range(request)

    async def _pages(self, request: Range, bytes_max: int | None) -> RangeResult:
        """A whole range at one revision, page by page, with a turn of the loop in between."""
        wanted = request.limit if request.limit > 0 else sys.maxsize
        keys = PAGE_KEYS_FIRST
        past, blocks = request.revision > 0, self.store.blocks_read
        exact = request.exact_count and not past
        page = first = self.store.range(replace(request, limit=min(keys, wanted), exact_count=exact))
        at = request.revision if request.revision > 0 else first.revision
        kvs, size = list(first.kvs), size_of(first.kvs)
        total = size
        while page.more and len(kvs) < wanted and (bytes_max is None or total < bytes_max):
            await asyncio.sleep(0)
            keys = next_page_keys(keys, size, self.store.blocks_read - blocks)
            blocks = self.store.blocks_read
            rest = replace(
                request,
                key=kvs[-1].key + b"\0",
                limit=min(keys, wanted - len(kvs)),
                revision=at,
                exact_count=False,
            )
            page = self.store.range(rest)
            size = size_of(page.kvs)
            total += size
            kvs += page.kvs
        count = first.count if exact else len(kvs) + page.more
        if past and request.exact_count and page.more:
            count = len(kvs) + await self._count_from(replace(request, key=kvs[-1].key + b"\0", keys_only=True))
        return RangeResult(first.revision, tuple(kvs), page.more, count)

    async def _count_from(self, request: Range) -> int:
        """Of a past revision, page by page: each key may take as many looks at what was written since as it has."""
        keys, count, blocks = PAGE_KEYS_FIRST, 0, self.store.blocks_read
        while True:
            await asyncio.sleep(0)
            page = self.store.range(replace(request, limit=keys, exact_count=False))
            count += len(page.kvs)
            if not page.more:
                return count
            request = replace(request, key=page.kvs[-1].key + b"\0")
            keys = next_page_keys(keys, 0, self.store.blocks_read - blocks)
            blocks = self.store.blocks_read

    async def read_txn(self, request: Txn) -> TxnResult:
        check_request(request, self.store.limits)
        await self.barrier()
        self.metrics.reads += 1
        pending = self.strict is not None and self.strict.is_pending(request)
        return await self._seen(self.store.read_txn(request), pending)

    def lease_keys(self, lease_id: int) -> tuple[bytes, ...]:
        """The keys of a lease as this node knows them; none of a lease that it does not know."""
        try:
            return tuple(self.store.lease_info(lease_id).keys)
        except LeaseNotFound:
            return ()

    async def lease_info(self, lease_id: int) -> LeaseInfo:
        """Raises LeaseNotFound."""
        await self.barrier()
        return self.store.lease_info(lease_id)

    async def leases(self) -> tuple[int, ...]:
        await self.barrier()
        return self.store.leases()

    async def digest(self) -> Digest:
        """Of this replica, at the revision that it names."""
        await self.barrier()
        return self.store.digest()

    # Watches.

    def watch(self, request: WatchRequest, *, progress_s: float | None = None) -> Watching:
        """Raises Compacted (naming MM) or InvalidRequest. Close it after use."""
        return Watching(self.store.watches, request, self.metrics, progress_s=progress_s)


def _into(future: asyncio.Future[Outcome]) -> Done:
    """Hands an outcome to who waits for it, if anybody still does."""

    def done(outcome: Outcome) -> None:
        if not future.done():
            future.set_result(outcome)

    return done


def size_of(kvs: Sequence[KeyValue]) -> int:
    return sum(len(kv.key) + len(kv.value) for kv in kvs)


def next_page_keys(keys: int, size_bytes: int, blocks: int = 0) -> int:
    """How many keys the next page has, after one of `keys` keys, `size_bytes` and `blocks` of events."""
    part = max(size_bytes / PAGE_BYTES, blocks / PAGE_BLOCKS)
    if part > 1:
        return max(1, keys // 2)
    return min(PAGE_KEYS_MAX, keys * 2) if part < 0.5 else keys


def is_pageable(request: Range) -> bool:
    """Whether pages in the order of the keys make up the answer."""
    ordered = request.sort_target is SortTarget.KEY and request.sort_order is not SortOrder.DESCEND
    filtered = (
        request.min_mod_revision
        or request.max_mod_revision
        or request.min_create_revision
        or request.max_create_revision
    )
    return ordered and not filtered and not request.count_only
