"""A member that is cut off until it needs a snapshot: what happens when the snapshot has become its store.

It dies, so that the next start finds a store ahead of its log, perhaps twice; or it lives on, so that the running
process replaces its state. Its disk may be slow by then, or its journal alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.sim.faults import Fault
from tests.sim.node import Host
from tests.sim.vault_disk import Killed

if TYPE_CHECKING:
    from tests.sim.nemesis import Nemesis

RESTART_S = 0.5
DIES_AGAIN, GOES_ON, WITH_SLOW_DISK, WITH_SLOW_JOURNAL, SLOW_S = 0.3, 0.45, 0.6, 0.8, 3.0
"""Amounts: below the first, the member crashes again in its next start; below the second it does not die; above the
others, its disk is slow by then, or syncs of its journal alone are."""
JOURNAL_S = 0.3


def left_behind(
    nemesis: Nemesis, host: Host, fault: Fault, dies_again: Callable[[], None], slow_disk: Callable[[], None]
) -> None:
    disk = host.disk
    if host.follows:
        return

    def comes_back() -> None:
        nemesis.start_at(host)
        if fault.amount < DIES_AGAIN:
            dies_again()

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
    away = [(host.id, other) for other in nemesis.world.hosts if other != host.id]
    nemesis.links.block([*away, *((other, own) for own, other in away)], fault.for_s)
    if fault.amount > WITH_SLOW_JOURNAL:
        nemesis.later(fault.for_s, lambda: slow_journal(nemesis, host))
    elif fault.amount > WITH_SLOW_DISK:
        nemesis.later(fault.for_s, slow_disk)


def slow_journal(nemesis: Nemesis, host: Host) -> None:
    """What the store, synced at the same time, has is not in the journal yet."""
    disk = host.disk
    disk.journal_s = JOURNAL_S

    def fast() -> None:
        disk.journal_s = 0.0

    nemesis.later(SLOW_S, fast)
