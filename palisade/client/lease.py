"""A lease that renews itself until it is closed.

The holder's deadline is never later than the cluster's: it is the time before the latest successful renewal was sent,
plus the lease's time. A holder that is paused or cut off for longer therefore knows that its lease may have expired as
soon as it runs again, without asking. A lost lease is never renewed again, even if the cluster still has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from palisade.base.clock import SystemClock
from palisade.base.errors import PalisadeError
from palisade.client.loss_guard import GuardedBody, LossGuard
from palisade.metastore.errors import LeaseNotFound
from palisade.metastore.requests import ttl_ms_of
from palisade.metastore.results import LeaseResult
from palisade.raftgroup.errors import RaftError

RENEWALS = 3
"""How often a lease is renewed within its time."""
RETRY_S = 0.2
"""Longest pause before a failed renewal is repeated; half of the time between two renewals of a short lease."""
REVOKE_S = 2.0
"""How long `close` waits for the revocation. If it fails, the lease expires by itself."""
_system_clock = SystemClock()


class LeaseLost(PalisadeError):
    """The lease has expired, was revoked, or could not be renewed in time: its keys are deleted or will be. What they
    stood for (a lock, a leadership) may belong to another holder."""

    code = "lease-lost"
    retry = False


class LeaseStore(Protocol):
    """The part of `client.store_api.StoreApi` that a lease uses."""

    async def lease_grant(self, ttl_s: float, id: int = 0) -> LeaseResult: ...  # noqa: A002
    async def lease_keep_alive(self, lease: int) -> LeaseResult: ...
    async def lease_revoke(self, lease: int) -> LeaseResult: ...


class Lease(GuardedBody):
    """Use it with `async with`, or call `start` and `close`. Leaving it revokes the lease, which deletes its keys.

    If the lease is lost inside the `async with`, the body is cancelled and LeaseLost is raised, as `asyncio.timeout`
    raises TimeoutError.

    `clock`: seconds; must not stop while the machine is suspended.
    """

    def __init__(self, store: LeaseStore, ttl_s: float, *, clock: Callable[[], float] = _system_clock.now) -> None:
        ttl_ms_of(ttl_s)  # Raises for an invalid time.
        self._store = store
        self._ttl_s = ttl_s
        self._clock = clock
        self._id = 0
        self._deadline = self._renew_at = 0.0
        self._trouble = "the holder was paused"
        self._loss: LeaseLost | None = None
        self._lost = asyncio.Event()
        self._guards: set[LossGuard] = set()
        self._keeper: asyncio.Task[None] | None = None
        self.closing = False
        """Whether `close` is running."""
        self.not_revoked: str | None = None
        """Why `close` could not revoke the lease; None if it could, or was not called."""

    @property
    def id(self) -> int:
        """The number of the lease, for `put(..., lease=)`. Raises RuntimeError before `start`."""
        if not self._id:
            raise RuntimeError("the lease is not granted yet; use it inside its 'async with'")
        return self._id

    @property
    def ttl_s(self) -> float:
        """The time after which the lease expires without a renewal."""
        return self._ttl_s

    @property
    def remaining_s(self) -> float:
        """How long the lease is certainly valid without another renewal; 0 if it is lost."""
        return 0.0 if self._loss is not None else max(0.0, self._deadline - self._clock())

    @property
    def is_lost(self) -> bool:
        """Whether the holder knows that the lease is lost."""
        return self._loss is not None

    @property
    def valid(self) -> bool:
        """Whether the lease has certainly not expired. It may have been revoked by another client."""
        return self.remaining_s > 0

    def check(self) -> None:
        """Raises LeaseLost unless the lease is valid."""
        if not self.valid:
            raise self._loss or self._expired()

    async def wait_lost(self) -> LeaseLost:
        """Wait until the lease is lost; returns the error that ended it."""
        await self._lost.wait()
        return self._loss or self._expired()

    def guarded(self) -> LossGuard:
        """An `async with` whose body is cancelled if the lease is lost; then it raises LeaseLost."""
        return LossGuard(self._guards, lambda: self._loss)

    async def start(self) -> None:
        """Grant the lease and start to renew it. Raises the errors of `lease_grant`."""
        asked = self._clock()
        granted = await self._store.lease_grant(self._ttl_s)
        self._id = granted.id
        self._renewed(asked, granted)
        self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def close(self) -> None:
        """Stop renewing and revoke the lease. Errors are not raised: the lease then expires by itself, and
        `not_revoked` has the reason."""
        if self._keeper is None:
            return
        keeper, self._keeper = self._keeper, None
        self.closing, self.not_revoked = True, "interrupted"
        try:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
            async with asyncio.timeout(REVOKE_S):
                await self._store.lease_revoke(self._id)
            self.not_revoked = None
        except LeaseNotFound:
            self.not_revoked = None
        except TimeoutError:
            self.not_revoked = f"no answer within {REVOKE_S:g} s"
        except (PalisadeError, OSError) as error:
            self.not_revoked = str(error)
        finally:
            self.closing = False

    async def _begin(self) -> LossGuard:
        await self.start()
        return self.guarded()

    async def _end(self) -> None:
        await self.close()

    # Renewals.

    async def _keep(self) -> None:
        while self._loss is None:
            await asyncio.sleep(max(0.0, self._renew_at - self._clock()))
            asked = self._clock()
            if asked >= self._deadline:
                self._lose(self._expired())
                return
            await self._renew(asked)

    async def _renew(self, asked: float) -> None:
        """One attempt. A renewal is applied after it was sent, so a deadline counted from `asked` is conservative."""
        try:
            async with asyncio.timeout(self._deadline - asked):
                self._renewed(asked, await self._store.lease_keep_alive(self._id))
        except (PalisadeError, OSError, TimeoutError) as error:
            if isinstance(error, PalisadeError) and not isinstance(error, RaftError) and not error.retry:
                self._lose(LeaseLost(f"lease {self._id} is lost: {error}"))
                return
            self._trouble = str(error) or "no response"
            pause_s = min(RETRY_S, self._ttl_s / RENEWALS / 2)
            self._renew_at = min(self._clock() + pause_s, self._deadline)

    def _renewed(self, asked: float, granted: LeaseResult) -> None:
        self._deadline = asked + granted.ttl_s
        self._renew_at = asked + granted.ttl_s / RENEWALS
        self._trouble = "the holder was paused"

    def _expired(self) -> LeaseLost:
        return LeaseLost(f"lease {self._id} of {self._ttl_s:g} s was not renewed in time ({self._trouble})")

    def _lose(self, loss: LeaseLost) -> None:
        self._loss = loss
        self._lost.set()
        for guard in list(self._guards):
            guard.fire()
