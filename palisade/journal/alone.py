"""A copy that an operator forced while the metadata store had no majority: by `activation force --without-store`, or by
configuration (`journal serve --force-without-store`).

Each start tries the store first. If the store does not answer within `FIRST_RECONCILE_S`, the copy serves alone: no
lock protects it, and it accepts no replica. It retries the store; once the store answers, the forced activation is
recorded, and the copy takes the lock like any other. If another copy was activated meanwhile, both may have served, and
this one stops.
"""

from __future__ import annotations

import logging
import math

from palisade.catalog.errors import NotAllowed
from palisade.catalog.forced_activation import AUDIT_FILE, CopyReport, ForcedActivation, Operator, forced
from palisade.client.activation import RoleTaken
from palisade.journal.copy_state import CopyState
from palisade.journal.errors import ActivationStopped, JournalDamaged, WrongRole

log = logging.getLogger(__name__)

RECONCILE_S = 0.5
FIRST_RECONCILE_S = 3.0
LEFT_CLAIMS_S = 5.0
"""After this time and twice the lease of the lock, claims that are still there belong to a running copy."""


class NoLease:
    """Without the store, nothing can end the role."""

    remaining_s = math.inf


class NoLock:
    """`taken_at`: the time at which the store first reported claims to the lock. They may be from before its outage,
    and end with their leases, or belong to a running copy. Nothing is acknowledged meanwhile."""

    def __init__(self) -> None:
        self.lease = NoLease()
        self.taken_at: float | None = None

    def taken(self, now: float, error: RoleTaken, longest_s: float) -> None:
        """Raises ActivationStopped once every old lease must have ended."""
        self.lease.remaining_s = 0.0
        self.taken_at = now if self.taken_at is None else self.taken_at
        if now > self.taken_at + longest_s:
            raise ActivationStopped(str(error)) from None


async def forced_of(copy: CopyState) -> ForcedActivation | None:
    """The forced activation that is not in the store yet, with its sequence beside the data.

    Raises JournalDamaged, WrongRole, OSError."""
    if AUDIT_FILE not in await copy.files.names():
        return None
    packed = await copy.files.read(AUDIT_FILE)
    try:
        found = ForcedActivation.from_bytes(AUDIT_FILE.encode(), packed)
    except Exception as error:
        raise JournalDamaged(f"{AUDIT_FILE} is damaged ({error}): force the copy again") from None
    if found.role != copy.options.role:
        raise WrongRole(f"{AUDIT_FILE} belongs to role {found.role}, not {copy.options.role}: give another directory")
    local = copy.state.local
    if local is not None and local.sequence > found.sequence:
        await copy.files.remove(AUDIT_FILE)  # a later activation was forced with the store; a sequence is never lowered
        return None
    if local is None or local.sequence < found.sequence:
        await copy.adopt(found.new_local)
    return found


async def force_by_configuration(copy: CopyState, operator: Operator) -> ForcedActivation:
    """As in the command: log the entries that are lost, write the audit record durably, then raise the sequence.

    Raises ActivationStopped, OSError."""
    options, state = copy.options, copy.state
    report = CopyReport(options.own.name, state.local, state.filling)
    try:
        plan = forced(options.role, options.own.name, report, [], None, operator)
    except NotAllowed as error:
        raise ActivationStopped(str(error)) from None
    for line in plan.gives_up:
        log.warning("forced without the metadata store: %s", line)
    await copy.files.replace(AUDIT_FILE, plan.to_bytes())
    await copy.adopt(plan.new_local)
    return plan
