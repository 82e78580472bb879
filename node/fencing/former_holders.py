"""Who may hold a lease of a history that a restore has ended: nobody knows, so it is waited for once.

A backup knows the holders that were registered when it was taken. One that came later may serve what is lost now, until
its lease runs out. So a restored store has one record more, under a name that no node has: whoever leads first takes it
for a holder that was granted a lease a moment ago and does not answer, and releases nothing before that has run out
(F3). No node goes by that name, so the record is taken away like that of any node that is gone. Pure.
"""

from __future__ import annotations

from fencing.release import Registration
from fencing.timing import Timing
from metastore.requests import SystemWrite
from metastore.system_records import SystemRecords
from node.fencing.registry import PREFIX, registrations, value_of


def record_name(generation: int) -> str:
    """Of all holders before `generation`. Nodes have no brackets in their names (`node.config.check_id`)."""
    return f"{PREFIX}(before generation {generation})"


def waiting_for_former(records: SystemRecords, generation: int) -> SystemWrite:
    """What makes the first leader of `generation` wait, as long as for the longest lease that the backup knows of.

    Raises StoreCorrupt."""
    known = [*registrations(records), Registration("", "", Timing().fence_s)]
    name = record_name(generation)
    former = Registration(
        name.removeprefix(PREFIX),
        "unknown",
        max(each.lease_s for each in known),
        fences=True,
        proceed_s=max(each.proceed_s for each in known),
    )
    return SystemWrite((), ((name, value_of(former)),))
