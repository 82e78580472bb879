"""Faults of a machine: it dies, is paused, or its disk is slow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.faults import Fault, Kind
from tests.sim.link_faults import block, both_ways, others
from tests.support.machine import FSYNC_S

if TYPE_CHECKING:
    from tests.sim.nemesis import Nemesis
    from tests.support.machine import Machine

UNREAD_S, SILENT_S = 0.05, 2.0
"""Before and after the pause of an isolated machine: the time until it is isolated, and for how long it still is."""


def kill(nemesis: Nemesis, fault: Fault, host: Machine, *, power: bool = False) -> None:
    if host.runs:
        nemesis.struck(fault)
    host.kill(power=power)


def crash(nemesis: Nemesis, fault: Fault, host: Machine) -> None:
    kill(nemesis, fault, host, power=fault.kind is Kind.POWER)
    nemesis.start_after(fault.for_s, host)


def pause(nemesis: Nemesis, fault: Fault, host: Machine) -> None:
    if host.runs:
        nemesis.struck(fault)
        stand_still(nemesis, fault, host)


def stand_still(nemesis: Nemesis, fault: Fault, host: Machine) -> None:
    if host.runs:
        host.process.pause()
        nemesis.later(fault.for_s, host.process.resume)


def pause_isolated(nemesis: Nemesis, fault: Fault, host: Machine) -> None:
    if host.runs:
        pause(nemesis, fault, host)
        pairs = both_ways([host.id], others(nemesis, host.id))
        nemesis.later(UNREAD_S, lambda: block(nemesis, pairs, fault.for_s + SILENT_S))


def slow_disk(nemesis: Nemesis, fault: Fault, host: Machine) -> None:
    disk = host.disk
    disk.fsync_s = 1.5 * fault.amount**3
    if host.runs and not host.follows:
        nemesis.struck(fault)

    def fast() -> None:
        disk.fsync_s = FSYNC_S

    nemesis.later(fault.for_s, fast)


ACTS = {
    Kind.CRASH: crash, Kind.POWER: crash, Kind.PAUSE: pause, Kind.PAUSE_ISOLATED: pause_isolated,
    Kind.SLOW_DISK: slow_disk,
}  # fmt: skip
