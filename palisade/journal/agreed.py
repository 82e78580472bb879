"""The agreed record and the lock of a role, in the metadata store.

A claim and a commit are transactions that compare the lock's creation revision (the fencing token) and the record's
modification revision. Thus they change nothing if the copy lost the lock or the record was changed in between.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from palisade.catalog.activation import ActivationRecord, LocalSequence, claimed, committed, lock_name, record_key
from palisade.catalog.forced_activation import ForcedActivation
from palisade.client.activation import RoleStore, reconcile_forced
from palisade.client.claims import Leadership, leader_of, prefix_of
from palisade.client.lease import LeaseLost
from palisade.client.operations import Compare, Put


@dataclass(frozen=True, slots=True)
class Agreed:
    """The role's state in the store. `revision`: the record's modification revision; 0 without a record. `epoch`: the
    generation of the store."""

    record: ActivationRecord | None
    revision: int
    epoch: int


@dataclass(frozen=True, slots=True)
class LockHolder:
    """The copy that holds the lock, or waits for it, as it announced itself. `address`: by which clients and the other
    copy reach it, which behind NAT differs from the address on which it listens."""

    name: str
    address: str

    def to_bytes(self) -> bytes:
        return json.dumps({"name": self.name, "address": self.address}).encode()

    @staticmethod
    def from_bytes(packed: bytes) -> LockHolder | None:
        """None if no copy has written the value."""
        try:
            value = json.loads(packed)
            return LockHolder(str(value["name"]), str(value["address"]))
        except (ValueError, KeyError, TypeError):
            return None


class RoleRecord:
    """For one role and one copy. `ttl_s`: lease of its lock."""

    def __init__(self, store: RoleStore, role: str, own: LockHolder, ttl_s: float, clock: Callable[[], float]) -> None:
        self._store = store
        self._role = role
        self._own = own
        self._clock = clock
        self.ttl_s = ttl_s
        self._key = record_key(role)

    def campaign(self) -> Leadership:
        """A place in the queue of the lock."""
        name, announced = lock_name(self._role), self._own.to_bytes()
        return Leadership(self._store, name, announced, ttl_s=self.ttl_s, clock=self._clock)

    async def read(self) -> Agreed:
        """Raises DamagedRow, NotAllowed, and the errors of the store."""
        found = await self._store.get(self._key)
        epoch = (await self._store.status())["generation"]
        if type(epoch) is not int:
            raise LeaseLost("the store has no generation yet; it is not initialized")
        if found is None:
            return Agreed(None, 0, epoch)
        return Agreed(ActivationRecord.from_bytes(self._key, found.value), found.mod_revision, epoch)

    async def claim(self, lock: Leadership, seen: Agreed) -> Agreed:
        """Claim the next sequence for this copy. Raises LeaseLost if the lock is lost or the record has changed."""
        record = claimed(seen.record, self._role, self._own.name, seen.epoch)
        return await self._write(lock, seen, record)

    async def commit(self, lock: Leadership, claim: Agreed) -> Agreed:
        """Call it once the local sequence is durable. Raises as `claim`."""
        if claim.record is None:
            raise ValueError("commit without a claim")
        return await self._write(lock, claim, committed(claim.record))

    async def reconcile(self, forced: ForcedActivation, write: Callable[[LocalSequence], Awaitable[None]]) -> None:
        """Record a forced activation that was made without the store. Raises NotAllowed if another copy was activated
        meanwhile, RoleTaken while there are claims to the lock, and the errors of the store."""
        await reconcile_forced(self._store, forced, write)

    async def _write(self, lock: Leadership, seen: Agreed, record: ActivationRecord) -> Agreed:
        unchanged = Compare.revision_is(self._key, seen.revision) if seen.revision else Compare.absent(self._key)
        done = await self._store.txn([lock.held(), unchanged], [Put(self._key, record.to_bytes())])
        if not done.succeeded:
            raise LeaseLost(
                f"role {self._role}: the lock was lost or the record changed; sequence {record.sequence} is not "
                f"{record.state}"
            )
        return Agreed(record, done.revision, seen.epoch)

    async def holder(self) -> LockHolder | None:
        """The copy that holds the lock."""
        found = await leader_of(self._store, prefix_of(lock_name(self._role)))
        return LockHolder.from_bytes(found.value) if found is not None else None

    async def waiting(self) -> set[str]:
        """The names of the copies that hold the lock or wait for it."""
        found = await self._store.range(prefix_of(lock_name(self._role)), prefix=True)
        return {holder.name for each in found.kvs if (holder := LockHolder.from_bytes(each.value)) is not None}
