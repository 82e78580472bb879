"""The agreed records of primary/backup roles, as an operator reads and forces them (docs/activation.md, A4).

A copy of a role has its own way to claim and commit (`palisade.journal`). Every write of this module compares, in its
transaction, the record's revision and the absence of a lock holder, and leaves an audit record.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Protocol

from palisade.base.content import Content
from palisade.base.key_text import key_text
from palisade.catalog.activation import LOCKS, ROOT, ActivationRecord, LocalSequence, lock_name, record_key
from palisade.catalog.errors import NotAllowed
from palisade.catalog.forced_activation import AUDIT, AgreedView, ForcedActivation, audit_prefix, reconciled
from palisade.client.claims import ClaimStore, prefix_of
from palisade.client.operations import Compare, Get, Put
from palisade.metastore.requests import CompareResult, CompareTarget, prefix_end
from palisade.metastore.results import KeyValue, RangeResult


class RoleStore(ClaimStore, Protocol):
    """The part of `palisade.Client` that is used here."""

    async def get(self, key: Content, *, revision: int = 0, serializable: bool = False) -> KeyValue | None: ...
    async def status(self) -> dict[str, object]: ...


class RoleTaken(NotAllowed):
    """The record has changed, or there are claims to the lock: of a running copy, or of one that died, until its lease
    ends. Nothing was written; read the role again."""


@dataclass(frozen=True, slots=True)
class RoleView:
    """One role at one revision. `revision`: the record's; 0 without a record. `holder`: what the holder of its lock
    announced, "" without one. `token`: of the lock. `forced`: audit records, oldest first."""

    role: str
    record: ActivationRecord | None
    revision: int
    holder: str
    token: int
    forced: tuple[ForcedActivation, ...]

    def agreed(self, epoch: int) -> AgreedView:
        return AgreedView(self.record, epoch)


async def epoch_of(store: RoleStore) -> int:
    """The present generation of the store. Raises NotAllowed before the cluster is initialized."""
    epoch = (await store.status()).get("generation")
    if type(epoch) is not int:
        raise NotAllowed("the metadata store has no generation yet: initialize the cluster with 'palisade init'")
    return epoch


async def read_roles(store: ClaimStore) -> tuple[RoleView, ...]:
    """Every role with a record, a lock holder or an audit record. Raises DamagedRow, NotAllowed."""
    records, locks, audits = await _at_one_revision(store, _all(ROOT), _all(LOCKS), _all(AUDIT))
    names = {kv.key.removeprefix(ROOT) for kv in records.kvs}
    names |= {kv.key.removeprefix(LOCKS).split(b"/")[0] for kv in locks.kvs}
    names |= {kv.key.removeprefix(AUDIT).split(b"/")[0] for kv in audits.kvs}
    return tuple(_view(name.decode("utf-8", "replace"), records, locks, audits) for name in sorted(names))


async def read_role(store: ClaimStore, role: str) -> RoleView:
    """Raises DamagedRow, NotAllowed."""
    wanted = Get(record_key(role)), _all(prefix_of(lock_name(role))), _all(audit_prefix(role))
    return _view(role, *await _at_one_revision(store, *wanted))


async def _at_one_revision(store: ClaimStore, *wanted: Get) -> list[RangeResult]:
    found = await store.txn([], wanted)
    return [each for each in found.results if isinstance(each, RangeResult)]


def _all(prefix: bytes) -> Get:
    return Get(prefix, prefix=True)


def _view(role: str, records: RangeResult, locks: RangeResult, audits: RangeResult) -> RoleView:
    key, claims = record_key(role), prefix_of(lock_name(role))
    record = next((kv for kv in records.kvs if kv.key == key), None)
    holder = min((kv for kv in locks.kvs if kv.key.startswith(claims)), key=lambda kv: kv.create_revision, default=None)
    return RoleView(
        role,
        None if record is None else ActivationRecord.from_bytes(key, record.value),
        0 if record is None else record.mod_revision,
        "" if holder is None else _announced(holder.value),
        0 if holder is None else holder.create_revision,
        tuple(
            ForcedActivation.from_bytes(kv.key, kv.value) for kv in audits.kvs if kv.key.startswith(audit_prefix(role))
        ),
    )


def _announced(value: bytes) -> str:
    """'n1 at 127.0.0.1:7501' of what a copy announces; else the text."""
    try:
        found = json.loads(value)
        return f"{found['name']} at {found['address']}"
    except (ValueError, KeyError, TypeError):
        return key_text(value) if value else "a copy without a name"


async def claim_forced(store: ClaimStore, forced: ForcedActivation, seen: RoleView) -> int:
    """The first step: the record is claimed, with its audit record. Returns the record's revision.

    Raises RoleTaken if the record has changed since it was read, or a copy holds the lock or waits for it.
    """
    unchanged = Compare.revision_is(record_key(forced.role), seen.revision)
    return await _write(store, forced, unchanged, forced.claim())


async def commit_forced(store: ClaimStore, forced: ForcedActivation, claimed_revision: int) -> int:
    """The last step, once the local sequence is durable. Raises RoleTaken as `claim_forced`; then the forced copy has
    a sequence that was claimed and never served with, and forcing can be repeated."""
    unchanged = Compare.revision_is(record_key(forced.role), claimed_revision)
    return await _write(store, forced, unchanged, forced.commit())


async def _write(store: ClaimStore, forced: ForcedActivation, unchanged: Compare, record: ActivationRecord) -> int:
    done = await store.txn(
        [unchanged, no_claims(forced.role)], [Put(record.key, record.to_bytes()), Put(forced.key, forced.to_bytes())]
    )
    if not done.succeeded:
        raise RoleTaken(
            f"role {forced.role}: its record changed or a copy began to take the role meanwhile; sequence "
            f"{forced.sequence} is not {record.state}. Stop every copy, see 'palisade activation show "
            f"{forced.role}', and repeat"
        )
    return done.revision


def no_claims(role: str) -> Compare:
    """The condition that no copy holds the lock of the role or waits for it."""
    prefix = prefix_of(lock_name(role))
    return Compare(prefix, CompareTarget.VERSION, CompareResult.EQUAL, 0, prefix_end(prefix))


async def reconcile_forced(
    store: RoleStore, pending: ForcedActivation, write: Callable[[LocalSequence], Awaitable[None]]
) -> ForcedActivation:
    """Record a forced activation that was made without the store; `write` makes the local sequence durable. Can be
    repeated after a crash at any step. Raises NotAllowed if another copy was activated meanwhile, RoleTaken."""
    epoch = await epoch_of(store)
    view = await read_role(store, pending.role)
    plan = replace(pending, epoch=epoch)
    if plan not in view.forced or view.record not in (plan.claim(), plan.commit()):
        plan = reconciled(pending, view.agreed(epoch))
        claimed = await claim_forced(store, plan, view)
    elif view.record == plan.commit():
        await write(plan.new_local)
        return plan
    else:
        claimed = view.revision
    await write(plan.new_local)
    await commit_forced(store, plan, claimed)
    return plan
