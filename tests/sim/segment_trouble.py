"""Faults of the volume with the segments of a data node: it fills up, or bits on it change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.faults import Fault
from tests.sim.node import Host

if TYPE_CHECKING:
    from tests.sim.nemesis import Nemesis


def full(nemesis: Nemesis, fault: Fault, host: Host) -> None:
    """Until an operator makes room and starts the node again."""
    segments = host.disk.segments
    segments.full, segments.on_full = True, lambda: nemesis.struck(fault)

    def room() -> None:
        make_room(host)
        nemesis.start_at(host)

    nemesis.later(fault.for_s, room)


def make_room(host: Host) -> None:
    """And end the node: a realtime log whose write has failed accepts nothing until it is read again."""
    host.disk.segments.full = False
    host.kill()


def damaged(nemesis: Nemesis, fault: Fault, host: Host) -> None:
    """A read finds damage of a copy, a start that of a log."""
    if host.disk.segments.damage():
        nemesis.struck(fault)
    if fault.amount < 0.5:
        host.kill()
        nemesis.later(fault.for_s, lambda: nemesis.start_at(host))
