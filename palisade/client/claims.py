"""Locks and elections, as etcd's `concurrency` package keeps them, so that its clients can share them.

A claimant puts a key `NAME/<lease id in hexadecimal>` under a lease of its own. The key with the lowest create revision
below `NAME/` holds the lock or the leadership; each other claimant waits for the deletion of the key before its own, so
one release wakes one claimant.

The create revision of the key is the *fencing token*: each later holder has a higher one. A lease alone cannot prevent
two processes from believing that they hold a lock, because a holder may be paused for longer than its lease. A write
that must not come from a former holder is therefore made in a transaction with the condition `held()`, or carries the
token to a resource that refuses lower ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Protocol, Unpack

from palisade.base.clock import SystemClock
from palisade.base.content import Content, as_bytes
from palisade.base.errors import PalisadeError
from palisade.base.interval import check_interval
from palisade.client.lease import Lease, LeaseLost, LeaseStore
from palisade.client.loss_guard import GuardedBody, LossGuard
from palisade.client.operations import Compare, Operation, Put
from palisade.client.range_options import RangeOptions
from palisade.client.watch_handle import WatchHandle
from palisade.metastore import requests
from palisade.metastore.errors import Compacted
from palisade.metastore.requests import SortOrder, SortTarget
from palisade.metastore.results import KeyValue, RangeResult, TxnResult
from palisade.wire.auth_errors import PermissionDenied

TTL_S = 10
RETRY_S = 0.2
"""Pause before a waiting claimant, or an observer, reads again after no node could answer."""
HOLDER_S = 1.0
"""How long a claim that was not acquired in time waits for the name of the holder, which is only for the error."""
_system_clock = SystemClock()


class NotAcquired(PalisadeError):
    """The lock or the leadership belongs to another holder, and was not released in time. Nothing was changed."""

    code = "not-acquired"
    retry = True


class ClaimStore(LeaseStore, Protocol):
    """The part of `client.store_api.StoreApi` that claims use."""

    async def txn(
        self,
        compare: Iterable[requests.Compare] = (),
        success: Iterable[Operation] = (),
        failure: Iterable[Operation] = (),
        *,
        timeout_s: float | None = None,
    ) -> TxnResult: ...
    async def range(
        self,
        key: Content,
        range_end: Content = b"",
        *,
        prefix: bool = False,
        timeout_s: float | None = None,
        **options: Unpack[RangeOptions],
    ) -> RangeResult: ...
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
    ) -> WatchHandle: ...


class Claim(GuardedBody):
    """A place in the queue of one name. Use it with `async with`, or call `acquire` and `release`.

    If its lease is lost inside the `async with`, the body is cancelled and LeaseLost is raised.
    """

    def __init__(
        self,
        store: ClaimStore,
        name: Content,
        value: Content = b"",
        *,
        ttl_s: float = TTL_S,
        timeout_s: float | None = None,
        clock: Callable[[], float] = _system_clock.now,
    ) -> None:
        """`ttl_s`: after this time without a renewal the next claimant takes over. `timeout_s`: how long `acquire`
        waits for its turn; 0 does not wait, None has no limit."""
        self._store = store
        self._prefix = prefix_of(name)
        self._value = as_bytes(value)
        check_interval("timeout_s", timeout_s)
        self._timeout_s = timeout_s
        self.lease = Lease(store, ttl_s, clock=clock)
        self._token = 0
        self.waits_for: bytes | None = None
        """The key of the claim before this one, while `acquire` waits for its end."""

    @property
    def key(self) -> bytes:
        """The key of this claim."""
        return self._prefix + b"%x" % self.lease.id

    @property
    def token(self) -> int:
        """The fencing token: higher than that of every earlier holder. Raises RuntimeError before `acquire`."""
        if not self._token:
            raise RuntimeError("not acquired yet; there is no token")
        return self._token

    def held(self) -> Compare:
        """The condition that this claim still exists, for transactions that only its holder may execute."""
        return Compare.created_at(self.key, self.token)

    def check(self) -> None:
        """Raises LeaseLost unless the lease is valid by this machine's clock."""
        self.lease.check()

    async def acquire(self) -> None:
        """Wait for the turn of this claim. Raises NotAcquired after `timeout_s`, LeaseLost, and errors of the store."""
        try:
            await self.lease.start()
            async with self.lease.guarded():
                self._token = await self._enter()
                acquired = await self._in_time()
            if not acquired:
                raise await self._not_acquired()
        except BaseException as error:
            await self.release()
            if isinstance(error, PermissionDenied):
                raise self._denied(error) from None
            raise

    async def release(self) -> None:
        """Delete the key of this claim, by revoking its lease. Does nothing if it was not acquired."""
        await self.lease.close()

    async def _begin(self) -> LossGuard:
        await self.acquire()
        return self.lease.guarded()

    async def _end(self) -> None:
        await self.release()

    # The queue.

    async def _enter(self) -> int:
        """The create revision of the key of this claim."""
        put = Put(self.key, self._value, self.lease.id)
        entered = await self._store.txn([Compare.absent(self.key)], [put])
        if not entered.succeeded:
            raise NotAcquired(f"{self.key.decode(errors='replace')} exists already; nothing was changed")
        return entered.revision

    def _denied(self, error: PermissionDenied) -> PermissionDenied:
        """The error with the prefix instead of the key, which only this attempt uses."""
        name, prefix = (text.decode(errors="replace") for text in (self._prefix[:-1], self._prefix))
        reason = str(error).replace(self.key.decode(errors="replace"), f"all keys that begin with {prefix}")
        return PermissionDenied(
            f"{name} can't be acquired: {reason}. A claim needs read and write: 'palisade user grant-permission USER "
            f"read {prefix}', and the same with write"
        )

    async def _in_time(self) -> bool:
        """Whether the turn of this claim came within `timeout_s`."""
        try:
            async with asyncio.timeout(None if not self._timeout_s else self._timeout_s):
                while not await self._has_turn(waits=self._timeout_s != 0):
                    pass
        except TimeoutError:
            return False
        return True

    async def _has_turn(self, *, waits: bool) -> bool:
        """Whether no earlier claim exists, and this one does; else waits for the end of the claim before it.

        A claim with a lower create revision can only disappear. Hence if this key is read after the absence of earlier
        ones was read, both facts held at the time of the second read.
        """
        try:
            before = await self._before()
            if before.kvs:
                if not waits:
                    raise TimeoutError
                self.waits_for = before.kvs[0].key
                await self._until_deleted(self.waits_for, before.revision + 1)
                self.waits_for = None
                return False
            own = await self._store.range(self.key, keys_only=True)
        except PalisadeError as error:
            await until_retry(error)
            return False
        if not own.kvs or own.kvs[0].create_revision != self._token:
            raise LeaseLost(f"the key {self.key.decode(errors='replace')} was deleted while it waited for its turn")
        return True

    async def _before(self) -> RangeResult:
        """The newest of the claims before this one."""
        return await self._store.range(
            self._prefix,
            prefix=True,
            limit=1,
            sort_order=SortOrder.DESCEND,
            sort_target=SortTarget.CREATE,
            max_create_revision=self._token - 1,
            keys_only=True,
        )

    async def _until_deleted(self, key: bytes, revision: int) -> None:
        """Returns early if the history was compacted meanwhile."""
        try:
            async with self._store.watch(key, start_revision=revision, filters=("put",)) as changes:
                async for change in changes:
                    if change.events:
                        return
        except Compacted:
            return

    async def _not_acquired(self) -> NotAcquired:
        """The error, with the holder if the cluster answers."""
        name = self._prefix[:-1].decode(errors="replace")
        try:
            async with asyncio.timeout(HOLDER_S):
                holder = await leader_of(self._store, self._prefix)
        except (PalisadeError, TimeoutError) as error:
            if isinstance(error, PalisadeError) and not error.retry:
                raise
            before = self.waits_for
            queue = f"; the claim before it is {before.decode(errors='replace')}" if before else ""
            why = str(error) or "no answer"
            return NotAcquired(
                f"{name} was not acquired within {self._timeout_s:g} s; its holder could not be read: {why}{queue}"
            )
        owner = f"{holder.key.decode(errors='replace')} (token {holder.create_revision})" if holder else "another claim"
        waited = f" and was not released within {self._timeout_s:g} s" if self._timeout_s else ""
        return NotAcquired(f"{name} is held by {owner}{waited}; nothing was changed")


class Lock(Claim):
    """`async with client.lock("/locks/compaction") as lock:` runs its body in one process at a time."""


class Leadership(Claim):
    """`async with client.campaign("/leader/ingest", "n1") as leadership:` runs its body while it is the leader."""

    async def proclaim(self, value: Content) -> None:
        """Change the announced value. Raises LeaseLost if this claim is no longer the leader."""
        self._value = as_bytes(value)
        done = await self._store.txn([self.held()], [Put(self.key, self._value, self.lease.id)])
        if not done.succeeded:
            raise LeaseLost(f"the key {self.key.decode(errors='replace')} no longer exists; the value was not changed")


def prefix_of(name: Content) -> bytes:
    """The prefix of the keys of all claims to a name."""
    prefix = as_bytes(name)
    if not prefix:
        raise ValueError("the name must not be empty")
    return prefix + b"/"


async def leader_of(store: ClaimStore, prefix: bytes) -> KeyValue | None:
    """The claim that holds the name: its key, value and create revision (the token); None if there is none."""
    found = await _oldest(store, prefix)
    return found.kvs[0] if found.kvs else None


async def observe(store: ClaimStore, prefix: bytes) -> AsyncIterator[KeyValue | None]:
    """The holder now and after each change; intermediate holders may be skipped. Continues while no node can answer,
    as a watch does."""
    shown: object = store
    while True:
        try:
            found = await _oldest(store, prefix)
        except PalisadeError as error:
            await until_retry(error)
            continue
        holder = found.kvs[0] if found.kvs else None
        if holder != shown:
            shown = holder
            yield holder
        try:
            async with store.watch(prefix, prefix=True, start_revision=found.revision + 1) as changes:
                async for change in changes:
                    if change.events:
                        break
        except Compacted:
            continue


async def until_retry(error: PalisadeError) -> None:
    """Raises `error` if a retry cannot help: the client is closed, has no stream address, or lacks a permission."""
    if not error.retry:
        raise error
    await asyncio.sleep(RETRY_S)


async def _oldest(store: ClaimStore, prefix: bytes) -> RangeResult:
    return await store.range(prefix, prefix=True, limit=1, sort_order=SortOrder.ASCEND, sort_target=SortTarget.CREATE)
