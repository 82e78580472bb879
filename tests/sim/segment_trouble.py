"""Faults of the volume with the segments of a data node: it fills up, or bits on it change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.faults import Fault, Kind
from tests.sim.node import Host

if TYPE_CHECKING:
    from tests.sim.cluster_nemesis import ClusterNemesis


def full(nemesis: ClusterNemesis, fault: Fault, host: Host) -> None:
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


def damaged(nemesis: ClusterNemesis, fault: Fault, host: Host) -> None:
    """A read finds damage of a copy, a start that of a log."""
    if host.disk.segments.damage():
        nemesis.struck(fault)
    if fault.amount < 0.5:
        host.kill()
        nemesis.start_after(fault.for_s, host)


ACTS = {Kind.FULL_SEGMENTS: full, Kind.DAMAGED_SEGMENTS: damaged}
