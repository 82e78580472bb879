"""Leases from before a break of history, whose holders are unknown: the first leader waits for them once.

A backup contains the holders that were registered when it was taken, and the survivor of a lost majority those that it
has records of. Another holder may serve lost changes until its lease expires. Thus the new history has one additional
record, under a name that no node has: the first leader treats it as a holder that was granted a lease a moment ago and
does not respond, and releases nothing before that lease has expired (F3). No node has that name, so the record is then
removed like that of any node that has left.

The length of such a lease is unknown, too. It counts as the longest of the recorded ones, of the default, and of the
configuration of the waiting leader, since all nodes are configured alike. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from palisade.fencing.former_leases import former_name, is_former
from palisade.fencing.release import Registration
from palisade.fencing.timing import FenceTiming
from palisade.metastore.requests import SystemWrite
from palisade.metastore.system_records import SystemRecords
from palisade.node.fencing.holder_registry import PREFIX, registrations, value_of


def record_name(generation: int) -> str:
    """The record for all holders before `generation`."""
    return f"{PREFIX}{former_name(generation)}"


def waiting_for_former(records: SystemRecords, generation: int) -> SystemWrite:
    """The record that makes the first leader of `generation` wait, at least as long as any lease in `records`.

    Raises StoreCorrupt.
    """
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
    """Unknown leases count at least as long as those of the leader itself."""
    return [
        replace(each, lease_s=max(each.lease_s, timing.fence_s)) if is_former(each.node) else each
        for each in registered
    ]
