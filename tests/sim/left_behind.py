"""A member that is cut off until it needs a snapshot: what happens when the snapshot has become its store.

It dies, so that the next start finds a store ahead of its log, perhaps twice; or it lives on, so that the running
process replaces its state. Its disk may be slow by then, or its journal alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.sim.faults import Fault, Kind
from tests.sim.link_faults import block, both_ways, others
from tests.sim.machine_faults import slow_disk
from tests.sim.node import Host
from tests.sim.node_faults import crash_in_write
from tests.sim.vault_disk import Killed

if TYPE_CHECKING:
    from tests.sim.cluster_nemesis import ClusterNemesis

RESTART_S = 0.5
DIES_AGAIN, GOES_ON, WITH_SLOW_DISK, WITH_SLOW_JOURNAL, SLOW_S = 0.3, 0.45, 0.6, 0.8, 3.0
"""Amounts: below the first, the member crashes again in its next start; below the second it does not die; above the
others, its disk is slow by then, or syncs of its journal alone are."""
JOURNAL_S = 0.3


def left_behind(nemesis: ClusterNemesis, fault: Fault, host: Host) -> None:
    disk = host.disk
    if host.follows:
        return

    def comes_back() -> None:
        nemesis.start_at(host)
        if fault.amount < DIES_AGAIN:
            crash_in_write(nemesis, fault, host)

    def replaced() -> None:
        disk.on_replaced = lambda: None
        if not nemesis.going:
            return
        nemesis.struck(fault)
        if not DIES_AGAIN <= fault.amount < GOES_ON:
            host.kill()
            nemesis.later(RESTART_S, comes_back)
            raise Killed

    disk.on_replaced = replaced
    block(nemesis, both_ways([host.id], others(nemesis, host.id)), fault.for_s)
    if fault.amount > WITH_SLOW_JOURNAL:
        nemesis.later(fault.for_s, lambda: slow_journal(nemesis, host))
    elif fault.amount > WITH_SLOW_DISK:
        slow = replace(fault, kind=Kind.SLOW_DISK, for_s=SLOW_S)
        nemesis.later(fault.for_s, lambda: slow_disk(nemesis, slow, host))


def slow_journal(nemesis: ClusterNemesis, host: Host) -> None:
    """What the store, synced at the same time, has is not in the journal yet."""
    disk = host.disk
    disk.journal_s = JOURNAL_S

    def fast() -> None:
        disk.journal_s = 0.0

    nemesis.later(SLOW_S, fast)
