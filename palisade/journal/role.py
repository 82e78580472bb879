"""The life of one copy: follow the active one, wait for the lock, decide, claim, serve.

The lock alone does not make a copy active: while it holds the lock, the copy makes the decision of
`catalog/activation.py` again, from a new read. A copy that may be older than another one releases the lock.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Awaitable, Callable
from typing import Any, cast

from palisade.base.errors import PalisadeError
from palisade.base.network_reason import reason_of
from palisade.catalog.activation import ActivationRecord, ClaimNext, Decision, Stop, decide
from palisade.catalog.errors import NotAllowed
from palisade.catalog.forced_activation import AUDIT_FILE, ForcedActivation
from palisade.client.activation import RoleTaken
from palisade.client.claims import Leadership
from palisade.client.lease import LeaseLost
from palisade.journal.active import Active, first_end_of, raise_sequence
from palisade.journal.agreed import Agreed, LockHolder, RoleRecord
from palisade.journal.alone import (
    FIRST_RECONCILE_S,
    LEFT_CLAIMS_S,
    RECONCILE_S,
    NoLock,
    force_by_configuration,
    forced_of,
)
from palisade.journal.channel import Network
from palisade.journal.copy_state import CopyState
from palisade.journal.errors import ActivationStopped, JournalDamaged, JournalError, NewerFormat, NotActive, WrongRole
from palisade.journal.follower_session import FollowerSession
from palisade.journal.local_file import LocalState
from palisade.metastore.errors import LeaseNotFound
from palisade.raftgroup.errors import RaftError

log = logging.getLogger(__name__)
RETRY_S = 0.1
POLL_S = 0.5
FATAL = (ActivationStopped, JournalDamaged, NewerFormat, WrongRole)
_TEMPORARY = (LeaseLost, LeaseNotFound, RaftError, TimeoutError)
"""LeaseNotFound: the lease of a claim expired before its key was written."""


def is_temporary(error: BaseException) -> bool:
    """The same request of the metadata store may succeed later."""
    return isinstance(error, _TEMPORARY) or (isinstance(error, PalisadeError) and error.retry)


class RoleState(enum.Enum):
    """Of one copy."""

    WAITING = "waiting"
    CATCHING_UP = "catching up"
    IN_SYNC = "in sync"
    ACTIVE = "active"
    OUT_OF_TIME = "active, out of time"


class RoleRunner:
    """`active`: while this copy serves. `holder`: the copy that was last seen with the lock. `reason`: why this copy
    does not serve. `on_active` is called when it begins to serve."""

    def __init__(
        self,
        copy: CopyState,
        record: RoleRecord,
        network: Network,
        on_active: Callable[[Active], None] = lambda _active: None,
    ) -> None:
        self.copy = copy
        self._record = record
        self._network = network
        self._changed = asyncio.Event()
        self._session: FollowerSession | None = None
        self.active: Active | None = None
        self.holder: LockHolder | None = None
        self.agreed: Agreed | None = None
        self.reason = "it starts"
        self._on_active = on_active

    @property
    def in_sync(self) -> bool:
        return self._session is not None and self._session.in_sync

    async def run(self) -> None:
        """Never returns. Raises ActivationStopped, JournalDamaged, WrongRole, NewerFormat, OSError."""
        await self.copy.load()
        forced = await self._forced()
        if forced is not None:
            await self._begin_forced(forced)
        while True:
            lock = await self._become_holder()
            try:
                await self._hold(lock)
            except (PalisadeError, TimeoutError) as error:
                if not is_temporary(error):
                    raise
                self.reason = str(error)
                log.warning("activation ended: role=%s reason=%s", self.copy.options.role, error)
            finally:
                await lock.release()

    async def _look(self) -> tuple[LocalState, Agreed]:
        """The local state is read first, because a newer sequence may be agreed and adopted while the record is read.
        With an older local state and a newer record, this copy only follows."""
        state = self.copy.state
        return state, await self._record.read()

    def decide(self, state: LocalState, agreed: Agreed) -> Decision:
        """Raises ActivationStopped."""
        self.agreed = agreed
        primary = self.copy.options.primary
        decision = decide(agreed.record, state.local, configured_primary=primary, epoch=agreed.epoch)
        if isinstance(decision, ClaimNext) and state.filling:
            decision = Stop("it was being filled when it stopped, and the agreed sequence is not newer")
        if isinstance(decision, Stop):
            raise ActivationStopped(
                f"role {self.copy.options.role} does not start with this copy: {decision.reason}. Compare the copies "
                "with 'palisade journal status', then run 'palisade activation force' for the copy to keep"
            )
        return decision

    # Forced without the metadata store.

    async def _forced(self) -> ForcedActivation | None:
        """Forced by the command, or by configuration if the store does not answer."""
        found, operator = await forced_of(self.copy), self.copy.options.forced_by
        if found is not None or operator is None:
            return found
        self.reason = "it tries the metadata store, and is forced if there is no answer"
        try:
            async with asyncio.timeout(FIRST_RECONCILE_S):
                await self._patiently(self._look)
        except TimeoutError:
            return await force_by_configuration(self.copy, operator)
        log.warning("the metadata store answers, copy not forced: omit --force-without-store")
        return None

    async def _begin_forced(self, forced: ForcedActivation) -> None:
        """Another copy may have been activated since it was forced: if the store answers, its record decides."""
        self.reason = "it was forced without the metadata store, and tries the store before it serves"
        lock = NoLock()
        try:
            async with asyncio.timeout(FIRST_RECONCILE_S):
                await self._reconcile(forced, lock)
        except TimeoutError:
            await self._serve_alone(forced, lock)

    async def _serve_alone(self, forced: ForcedActivation, lock: NoLock) -> None:
        """Retries until the store has recorded it. Raises ActivationStopped if another copy was activated meanwhile."""
        agreed = Agreed(forced.commit(), 0, forced.epoch)
        active = Active(self.copy, self._record, cast("Leadership", lock), agreed)
        self.active, self.holder, self.agreed = active, self.copy.options.own, active.agreed
        self.reason = "it was forced without the metadata store"
        log.warning("serving alone: role=%s sequence=%d", forced.role, forced.sequence)
        try:
            await first_end_of(active.run(), self._reconcile(forced, lock))
        finally:
            self.active = None
            active.end()

    async def _reconcile(self, forced: ForcedActivation, lock: NoLock) -> None:
        while True:
            try:
                await self._record.reconcile(forced, self.copy.adopt)
                break
            except RoleTaken as error:
                lock.taken(asyncio.get_running_loop().time(), error, LEFT_CLAIMS_S + 2 * self._record.ttl_s)
                await asyncio.sleep(RECONCILE_S)
            except NotAllowed as error:
                raise ActivationStopped(str(error)) from None
            except (PalisadeError, TimeoutError) as error:
                if not is_temporary(error):
                    raise
                log.debug("not reconciled yet: role=%s reason=%s", forced.role, error)
                await asyncio.sleep(RECONCILE_S)
        await self.copy.files.remove(AUDIT_FILE)

    # Without the lock.

    async def _become_holder(self) -> Leadership:
        following = asyncio.ensure_future(self._follow())
        candidacy = asyncio.ensure_future(self._acquire())
        try:
            await asyncio.wait((following, candidacy), return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                following.result()
            return await candidacy
        finally:
            following.cancel()
            candidacy.cancel()
            await asyncio.gather(following, candidacy, return_exceptions=True)

    async def _acquire(self) -> Leadership:
        """Enter the queue of the lock once this copy may be the newest."""
        while True:
            decision = self.decide(*await self._patiently(self._look))
            if isinstance(decision, ClaimNext):
                self.reason = "it waits for the lock"
                lock = self._record.campaign()
                try:
                    await lock.acquire()
                    return lock
                except (PalisadeError, TimeoutError) as error:
                    if not is_temporary(error):
                        raise
                    self.reason = str(error)
                    await asyncio.sleep(RETRY_S)
                    continue
            self.reason = decision.reason if not isinstance(decision, ClaimNext) else self.reason
            self._changed.clear()
            try:
                async with asyncio.timeout(POLL_S):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _patiently(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        while True:
            try:
                return await ask()
            except (PalisadeError, TimeoutError) as error:
                if not is_temporary(error):
                    raise
                self.reason = f"the metadata store does not answer: {error}"
                await asyncio.sleep(RETRY_S)

    async def _follow(self) -> None:
        """Follow the active copy; connect again after each failure. Raises fatal errors only. Every error of the own
        disk is fatal: a block may be stored in part, or the next sync may succeed without the data of the failed one.
        """
        own = self.copy.options.own.name
        while True:
            self.holder = await self._patiently(self._record.holder)
            if self.holder is not None and self.holder.name != own:
                await self._follow_one(self.holder)
            await asyncio.sleep(RETRY_S)

    async def _follow_one(self, holder: LockHolder) -> None:
        where = f"not attached to {holder.name} at {holder.address}"
        try:
            channel = await self._network.dial(holder.address)
        except (OSError, TimeoutError) as error:
            self.reason = f"{where}: {reason_of(error)}"
            return
        try:
            await self.copy.load()
            self._session = FollowerSession(self.copy, channel, self._changed.set)
            await self._session.run()
        except FATAL:
            raise
        except JournalError as error:
            self.reason = f"{where}: {error}"
        finally:
            self._session = None
            channel.close()

    # With the lock.

    async def _hold(self, lock: Leadership) -> None:
        """Raises LeaseLost, ActivationStopped, OSError."""
        async with lock.lease.guarded():
            await self.copy.load()
            state, seen = await self._look()
            if not isinstance(decision := self.decide(state, seen), ClaimNext):
                self.reason = decision.reason if not isinstance(decision, Stop) else self.reason
                return
            await self.copy.settle()
            agreed = await raise_sequence(self.copy, self._record, lock, seen)
            active = Active(self.copy, self._record, lock, agreed)
            self.active, self.holder, self.reason = active, self.copy.options.own, ""
            self.copy.tally.activations += 1
            log.info("activated: role=%s sequence=%d", self.copy.options.role, active.sequence)
            self._on_active(active)
            try:
                await active.run()
                self.reason = "it handed the role to the configured primary"
            finally:
                self.active = self.holder = None
                active.end()

    # Used by other modules.

    def serving(self) -> Active:
        """Raises NotActive."""
        if self.active is None:
            raise NotActive(f"{self.copy.options.own.name} is not active: {self.reason or 'it follows'}")
        return self.active

    def status(self) -> dict[str, Any]:
        """The status of this copy, with the agreed values that it last read."""
        copy, active = self.copy, self.active
        local, record = copy.state.local, self.agreed_record
        end = copy.log.end
        return {
            "role": copy.options.role,
            "name": copy.options.own.name,
            "state": self.state.value,
            "reason": self.reason,
            "active": str(self.holder.address) if self.holder else None,
            "sequence": local.sequence if local else 0,
            "epoch": local.epoch if local else 0,
            "filling": copy.state.filling,
            "agreed_sequence": record.sequence if record else 0,
            "agreed_state": record.state.value if record else None,
            "agreed_owner": record.owner if record else None,
            "last": end.last,
            "chain": f"{end.chain:016x}",
            "acknowledged": active.progress.acknowledged if active else None,
            "replica": active.replica_name if active else None,
            "replica_state": active.progress.replica.value if active else None,
        }

    @property
    def agreed_record(self) -> ActivationRecord | None:
        """As this copy last read or wrote it."""
        agreed = self.active.agreed if self.active is not None else self.agreed
        return agreed.record if agreed is not None else None

    @property
    def state(self) -> RoleState:
        if self.active is not None:
            return RoleState.ACTIVE if self.active.in_time else RoleState.OUT_OF_TIME
        if self._session is None:
            return RoleState.WAITING
        return RoleState.IN_SYNC if self.in_sync else RoleState.CATCHING_UP
