"""A copy that an operator forced while the metadata store had no majority (`activation force --without-store`).

Each start asks the store first. If the store does not answer within `FIRST_RECONCILE_S`, the copy serves alone: no lock
protects it, and it accepts no replica. It asks the store again and again; when that answers, the forced activation is
recorded, and the copy takes the lock as any other. If another copy was activated meanwhile, both may have served, and
this one stops.
"""

from __future__ import annotations

import math

from palisade.catalog.forced_activation import AUDIT_FILE, ForcedActivation
from palisade.journal.copy_state import CopyState
from palisade.journal.errors import JournalDamaged, WrongRole

RECONCILE_S = 0.5
FIRST_RECONCILE_S = 3.0


class NoLease:
    """There is no store that could end it."""

    remaining_s = math.inf


class NoLock:
    lease = NoLease()


async def forced_of(copy: CopyState) -> ForcedActivation | None:
    """The forced activation that the store does not know yet, with its sequence beside the data.

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
        await copy.files.remove(AUDIT_FILE)  # a later one was forced with the store; a sequence is never lowered
        return None
    if local is None or local.sequence < found.sequence:
        await copy.adopt(found.new_local)
    return found
