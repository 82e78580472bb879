"""Faults of the survivor of a lost majority: what it forgets, what its state lacks, when it must not continue."""

from __future__ import annotations

from typing import Any

import palisade.api.stream.watches
import palisade.node.survivor_store
from palisade.metastore.command_codec import encode_command
from palisade.metastore.requests import SystemWrite
from palisade.metastore.system_records import SystemRecords
from palisade.node.fencing.inherited_leases import waiting_for_former
from palisade.raftgroup.ports import Journal
from palisade.raftgroup.quorum_loss import force_new_cluster
from tests.sim.faults import Fault, Kind
from tests.sim.plants.plant import Patch, Stage, caught_by, with_faults

ALONE = with_faults(Fault(6.0, Kind.LOSE_QUORUM, "n1", "n2", 0.5))


@caught_by("survivor's state", on=ALONE)
def survivors_that_keep_what_they_have_applied(patch: Patch) -> None:
    """And drop the rest of their logs, which may have been acknowledged."""

    async def forgetful(journal: Journal, survivor: Any, *rest: Any) -> Any:
        journal.truncate_from(max(journal.first.index + 1, journal.last.index - 2))
        return await force_new_cluster(journal, survivor, *rest)

    patch.setattr(palisade.node.survivor_store, "force_new_cluster", forgetful)


@caught_by("survivor's state", "recovery decision", on=ALONE)
def survivors_that_keep_the_generation(patch: Patch) -> None:
    """Of their state: the group is of a newer one, and a node with an old vault does not detect it (R7)."""

    def without_former_leases(records: SystemRecords, generation: int) -> tuple[bytes, ...]:
        return (encode_command(waiting_for_former(records, generation)),)

    patch.setattr(palisade.node.survivor_store, "recovery_commands", without_former_leases)


@caught_by("survivor's state", on=ALONE)
def survivors_that_wait_for_no_earlier_lease(patch: Patch) -> None:
    """They know the holders on their own record only (F3)."""
    nobody = SystemWrite((), (("nobody", b""),))
    patch.setattr(palisade.node.survivor_store, "waiting_for_former", lambda records, generation: nobody)


@caught_by("watch contract", on=Stage("restores", 3))
def watches_that_name_their_history_once(patch: Patch) -> None:
    """A member that has just joined a cluster reports that it has no history, and never the one that it gets (M4)."""
    first = palisade.api.stream.watches.history_of

    def once(service: Any) -> Any:
        if not hasattr(service, "said"):
            service.said = first(service)
        return service.said

    patch.setattr(palisade.api.stream.watches, "history_of", once)
