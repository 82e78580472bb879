"""Who may hold a lease of a history that was broken off: nobody knows, so it is waited for once.

A backup knows the holders that were registered when it was taken, and the survivor of a lost majority those that it has
heard of. Another one may serve what is lost now, until its lease runs out. So the history that follows has one record
more, under a name that no node has: whoever leads first takes it for a holder that was granted a lease a moment ago and
does not answer, and releases nothing before that has run out (F3). No node goes by that name, so the record is taken
away like that of any node that is gone.

How long such a lease is nobody knows either. It counts as the longest of those that are on record, of the default, and
of what the leader that waits was told, since all nodes are told the same. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from palisade.fencing.release import Registration
from palisade.fencing.timing import FenceTiming
from palisade.metastore.requests import SystemWrite
from palisade.metastore.system_records import SystemRecords
from palisade.node.fencing.holder_registry import PREFIX, registrations, value_of

FORMER = "(before generation "
"""Nodes have no brackets in their names (`node.config.check_id`)."""


def record_name(generation: int) -> str:
    """Of all holders before `generation`."""
    return f"{PREFIX}{FORMER}{generation})"


def waiting_for_former(records: SystemRecords, generation: int) -> SystemWrite:
    """What makes the first leader of `generation` wait, no shorter than for any lease that `records` know of.

    Raises StoreCorrupt."""
    known = [*registrations(records), Registration("", "", FenceTiming().fence_s)]
    name = record_name(generation)
    former = Registration(
        name.removeprefix(PREFIX),
        "unknown",
        max(each.lease_s for each in known),
        fences=True,
        proceed_s=max(each.proceed_s for each in known),
    )
    return SystemWrite((), ((name, value_of(former)),))


def counted_by(timing: FenceTiming, registered: Iterable[Registration]) -> list[Registration]:
    """Leases that nobody knows count no shorter than those of the leader itself."""
    return [
        replace(each, lease_s=max(each.lease_s, timing.fence_s)) if each.node.startswith(FORMER) else each
        for each in registered
    ]
