"""Leases, locks and elections for blocking programs. They are renewed in the thread of the client's event loop.

A blocking body cannot be interrupted when its lease is lost: call `check` before each step that needs the lock, and use
`held()` or the token for what a former holder must not do. Leaving the `with` after a loss raises LeaseLost.
"""

from __future__ import annotations

from typing import Generic, Self, TypeVar

from palisade.base.content import Content
from palisade.client.claims import Claim, Leadership
from palisade.client.lease import Lease
from palisade.client.loop_thread import LoopThread
from palisade.client.operations import Compare

C = TypeVar("C", bound=Claim)


class SyncLease:
    """`with client.lease(10) as lease: client.put(key, value, lease=lease.id)`. Leaving it revokes the lease."""

    def __init__(self, lease: Lease, thread: LoopThread) -> None:
        self._lease = lease
        self._thread = thread

    @property
    def id(self) -> int:
        """The number of the lease. Raises RuntimeError before `start`."""
        return self._lease.id

    @property
    def remaining_s(self) -> float:
        """How long the lease is certainly valid without another renewal; 0 if it is lost."""
        return self._lease.remaining_s

    @property
    def valid(self) -> bool:
        """Whether the lease has certainly not expired. It may have been revoked by another client."""
        return self._lease.valid

    def check(self) -> None:
        """Raises LeaseLost unless the lease is valid."""
        self._lease.check()

    def start(self) -> None:
        """Grant the lease and start to renew it. Raises the errors of `lease_grant`."""
        self._thread.run(self._lease.start())

    def close(self) -> None:
        """Stop renewing and revoke the lease. Errors are ignored: then the lease expires by itself."""
        self._thread.run(self._lease.close())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.check()
        finally:
            self.close()


class SyncClaim(Generic[C]):
    """A lock, as `with client.lock(name) as lock:`. `lease` of it is that of the claim."""

    def __init__(self, claim: C, thread: LoopThread) -> None:
        self._claim = claim
        self._thread = thread
        self.lease = SyncLease(claim.lease, thread)

    @property
    def key(self) -> bytes:
        """The key of this claim."""
        return self._claim.key

    @property
    def token(self) -> int:
        """The fencing token: higher than that of every earlier holder. Raises RuntimeError before `acquire`."""
        return self._claim.token

    def held(self) -> Compare:
        """The condition that this claim still exists, for transactions that only its holder may execute."""
        return self._claim.held()

    def check(self) -> None:
        """Raises LeaseLost unless the lease is valid by this machine's clock."""
        self._claim.check()

    def acquire(self) -> None:
        """Wait for the turn of this claim. Raises NotAcquired, LeaseLost, and errors of the store."""
        self._thread.run(self._claim.acquire())

    def release(self) -> None:
        """Delete the key of this claim, by revoking its lease. Does nothing if it was not acquired."""
        self._thread.run(self._claim.release())

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.check()
        finally:
            self.release()


class SyncLeadership(SyncClaim[Leadership]):
    """A leadership, as `with client.campaign(name, value) as leadership:`."""

    def proclaim(self, value: Content) -> None:
        """Change the announced value. Raises LeaseLost if this claim is no longer the leader."""
        self._thread.run(self._claim.proclaim(value))
