"""The one write and read path of a node. HTTP, etcd's paths, the stream and the embedded store call it; they only
decode and encode.

The caller's rights are checked once for every request, before anything else. Every write is checked before it is
proposed, has a deadline, and ends in one of three ways: a result, a refusal (nothing changed), or OutcomeUnknown. Reads
are linearizable unless requested otherwise: a local read after a read barrier of the group. The errors are those of
`metastore.errors`, `raftgroup.errors` and `wire.fencing_errors`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, TypeVar

from palisade.base.metrics import Metrics
from palisade.metastore.command_codec import encode_command
from palisade.metastore.digest import StoreDigest
from palisade.metastore.errors import LeaseNotFound
from palisade.metastore.requests import Command, Put, Range, RequestId, Txn, WatchRequest
from palisade.metastore.results import LeaseInfo, RangeResult, TxnResult
from palisade.metastore.state_machine import MetaStore
from palisade.metastore.validation import check_request, check_request_id, is_read_only
from palisade.service.authorization.needs import needs_of
from palisade.service.callers import Caller
from palisade.service.pending_frame import FrameReply, PendingFrame
from palisade.service.pending_write import PendingWrite, Reply, StrictResponses
from palisade.service.ports import GroupFace
from palisade.service.range_pages import read_in_turns
from palisade.service.watches import Watching
from palisade.service.write_checks import WriteChecks

R = TypeVar("R", RangeResult, TxnResult)

SCANS_MAX = 16
"""Maximum ranges that are assembled at the same time. Others wait, so that the results fit in memory."""


class KeyValues:
    """`deadline_s`: how long a request without a deadline may take. `strict`: holds responses about strict regions
    until the release; None without fencing."""

    def __init__(
        self,
        group: GroupFace,
        store: MetaStore,
        *,
        deadline_s: float = 5.0,
        metrics: Metrics | None = None,
        strict: StrictResponses | None = None,
    ) -> None:
        self.group = group
        self.store = store
        self.deadline_s = deadline_s
        self.metrics = metrics or Metrics()
        self.strict = strict
        self._checks = WriteChecks(store.limits, strict, self.lease_keys)
        self._scans = asyncio.Semaphore(SCANS_MAX)

    def authorize(self, request: Any, caller: Caller) -> None:
        """Raises the refusal of a caller that may not make this request."""
        if not caller.is_limited:
            return
        if type(request) is Put and not request.prev_kv:
            caller.require_write(request.key)
        else:
            caller.require(needs_of(request, self.lease_keys))

    # Writes.

    def submit(
        self,
        request: Command,
        reply: Reply,
        *,
        caller: Caller,
        request_id: RequestId | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Propose a write; `reply` is called once, with its result or its exception.

        A write to a strict region is answered when it is released, or with ReleasePending at its deadline. Raises the
        refusal of a write that is not proposed; then `reply` is not called.
        """
        if caller.is_limited:
            self.authorize(request, caller)
        check_request(request, self.store.limits)
        if request_id is not None:
            check_request_id(request_id, self.store.limits)
        strict = self.strict
        touches_strict = strict is not None and strict.classify(request, own=caller.writes_own)
        command, timeout_s = encode_command(request, request_id), timeout_s or self.deadline_s
        self.group.submit(
            PendingWrite(command, request, request_id, reply, timeout_s, strict, touches_strict, self.metrics)
        )

    async def write(
        self,
        request: Command,
        request_id: RequestId | None = None,
        *,
        caller: Caller,
        timeout_s: float | None = None,
    ) -> Any:
        """The result of a write; as `submit`. A transaction without writes is a linearizable read, not proposed."""
        if isinstance(request, Txn) and request_id is None and is_read_only(request):
            return await self.read_txn(request, caller=caller)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def reply(result: Any) -> None:
            if not answer.done():
                answer.set_result(result)

        self.submit(request, reply, caller=caller, request_id=request_id, timeout_s=timeout_s)
        result = await answer
        if isinstance(result, Exception):
            raise result
        return result

    def submit_frame(
        self, numbered: Iterable[tuple[int, Any]], reply: FrameReply, puts_max: int, *, caller: Caller, timeout_s: float
    ) -> int:
        """Propose many encoded commands as one proposal; returns the number of proposed puts. Each command is refused
        or answered separately. Raises TooManyPuts, and as the iteration of `numbered`: then nothing was done."""
        accepted, refused = self._checks.frame(numbered, caller, puts_max)
        for write in refused:
            if write.refusal is not None:
                reply.on_refusal([write], write.refusal)
        if not accepted:
            return 0
        frame = PendingFrame(accepted, reply, timeout_s, self.strict, self.metrics)
        try:
            self.group.submit(frame)
        except Exception as error:
            reply.on_refusal(accepted, error)
            return 0
        return frame.weight

    async def all_released(self, *, timeout_s: float | None = None) -> None:
        """Wait until every strict change so far is released. Raises Unavailable, ReleasePending."""
        if self.strict is None:
            return
        await self.barrier(timeout_s=timeout_s)
        revision = self.store.revision
        if not await self.strict.released.until(revision, timeout_s or self.deadline_s):
            raise self.strict.pending(revision)

    # Reads.

    async def barrier(self, *, timeout_s: float | None = None) -> None:
        """Afterwards a read of the store is linearizable. Raises Unavailable."""
        if not self.group.try_read_barrier():
            await self.group.read_barrier(timeout_s=timeout_s or self.deadline_s)

    async def range(
        self,
        request: Range,
        *,
        caller: Caller,
        timeout_s: float | None = None,
        bytes_max: int | None = None,
    ) -> RangeResult:
        """`bytes_max`: an answer in the order of the keys ends there, with `more`, whatever its limit."""
        self.authorize(request, caller)
        check_request(request, self.store.limits)
        self.group.check_alive()
        if not request.serializable:
            await self.barrier(timeout_s=timeout_s)
        self.metrics.reads += 1
        if not request.range_end:
            pending = self._is_pending(request)
            return await self._seen(self.store.range(request), pending, timeout_s)
        async with self._scans:
            pending = self._is_pending(request)
            return await self._seen(await read_in_turns(self.store, request, bytes_max), pending, timeout_s)

    def _is_pending(self, request: Range) -> bool:
        """Only linearizable reads wait for releases; others return committed data."""
        linearizable = not request.serializable and request.revision <= 0
        return linearizable and self.strict is not None and self.strict.is_pending(request)

    async def _seen(self, result: R, pending: bool, timeout_s: float | None = None) -> R:
        """A read that has seen an unreleased strict change waits for its release."""
        if pending and self.strict is not None:
            await self.strict.seen(result.revision, timeout_s or self.deadline_s)
        return result

    def range_now(self, request: Range, *, caller: Caller) -> RangeResult | None:
        """The result of a read of one key if it requires no waiting, else None: then await `range`."""
        if caller.is_limited:
            self.authorize(request, caller)
        if request.range_end or not (request.serializable or self.group.try_read_barrier()):
            return None
        if self._is_pending(request):
            return None
        check_request(request, self.store.limits)
        self.group.check_alive()
        self.metrics.reads += 1
        return self.store.range(request)

    async def read_txn(self, request: Txn, *, caller: Caller) -> TxnResult:
        self.authorize(request, caller)
        check_request(request, self.store.limits)
        await self.barrier()
        self.metrics.reads += 1
        pending = self.strict is not None and self.strict.is_pending(request)
        return await self._seen(self.store.read_txn(request), pending)

    def lease_keys(self, lease_id: int) -> tuple[bytes, ...]:
        """As this node knows them; empty for an unknown lease. A client that attaches a key to a lease accepts that any
        client that may end the lease deletes the key."""
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

    async def digest(self) -> StoreDigest:
        """Of this replica, at the revision in the result."""
        await self.barrier()
        return self.store.digest()

    # Watches.

    def watch(self, request: WatchRequest, *, progress_s: float | None = None) -> Watching:
        """Raises Compacted (naming MM), InvalidRequest, or NodeFailed. Close it after use."""
        self.group.check_alive()
        return Watching(self.store.watches, request, self.metrics, progress_s=progress_s)
