"""Faults of a node: it dies, is paused or stopped in the middle of something, gets another time, compacts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from palisade.metastore.requests import Compact
from palisade.service.callers import UNRESTRICTED
from tests.sim.faults import Fault, Kind
from tests.sim.fuse import CALLS_MAX, light_fuse
from tests.sim.local_data import PIN_LIFE_S
from tests.sim.machine_faults import kill, pause
from tests.sim.node import Host, wall_offset_s
from tests.sim.vault_disk import Killed

if TYPE_CHECKING:
    from tests.sim.cluster_nemesis import ClusterNemesis

WITHOUT_VAULT = 0.3
"""This many starts are interrupted."""
IN_EVICTION = 0.7
"""This many starts of followers with data beside their vaults are interrupted in an eviction."""
EVICTION_STEPS = 12
"""Fewer than an eviction of the data of all keys has."""


def crash_in_write(nemesis: ClusterNemesis, fault: Fault, host: Host) -> None:
    hand, process = host.disk.hand, host.process
    if process is None or process.dead:
        return
    hand.dies_at, hand.behind = 1 + int(fault.amount * 12), fault.amount * 12 % 1 < 0.5
    hand.die = lambda: kill(nemesis, fault, host)
    process.on_death[fault] = lambda: nemesis.start_after(fault.for_s, host)


def crash_in_start(nemesis: ClusterNemesis, fault: Fault, host: Host) -> None:
    host.kill()

    def start() -> None:
        if not host.runs:
            if fault.amount * 4 % 1 < WITHOUT_VAULT:
                host.disk.put_vault_aside()
            nemesis.start_at(host)
            if host.follows and nemesis.world.has_rare and fault.amount * 8 % 1 < IN_EVICTION:
                dies_in_eviction(nemesis, fault, host)
            else:
                crash_in_write(nemesis, fault, host)

    nemesis.later(fault.for_s, start)


def dies_in_eviction(nemesis: ClusterNemesis, fault: Fault, host: Host) -> None:
    """It dies between two steps of its next eviction of data beside its vault, or of their fetch; `amount` selects how
    far it gets. It is down for longer than its pin on MM lives, so it may need another snapshot."""
    shelf, left = host.disk.shelf, 1 + int(fault.amount * 64 % EVICTION_STEPS)

    def stepped() -> None:
        nonlocal left
        left -= 1
        if left or not nemesis.going:
            return
        nemesis.struck(fault)
        nemesis.world.count("rare path: dies in an eviction")
        host.kill()
        nemesis.start_after(PIN_LIFE_S + fault.for_s, host)
        raise Killed

    shelf.on_step = stepped


def crash_in_turn(nemesis: ClusterNemesis, fault: Fault, host: Host) -> None:
    process = host.process
    if process is None or process.dead:
        return
    light_fuse(process, 1 + int(fault.amount * CALLS_MAX), lambda: kill(nemesis, fault, host))
    process.on_death[fault] = lambda: nemesis.start_after(fault.for_s, host)


def pause_in_turn(nemesis: ClusterNemesis, fault: Fault, host: Host) -> None:
    process = host.process
    if process is not None and not process.dead:
        light_fuse(process, 1 + int(fault.amount * CALLS_MAX), lambda: pause(nemesis, fault, host))


def stop(nemesis: ClusterNemesis, fault: Fault, host: Host) -> None:
    """In any phase."""
    if not host.runs or host.node is None:
        return
    phase = host.node.topology.member.life.phase

    def gone() -> None:
        host.kill()
        nemesis.world.note(host.id, f"has stopped on request while {phase.value}")
        nemesis.struck(fault)
        nemesis.world.count(f"stopped while: {phase.value}")
        if nemesis.going:
            nemesis.start_after(fault.for_s, host)
        else:
            nemesis.start_at(host)

    host.stop(gone)


def wall_step(nemesis: ClusterNemesis, fault: Fault, host: Host) -> None:
    host.step_wall(wall_offset_s(fault.amount))
    host.run_at(nemesis.world.rate_of(fault.amount * 7 % 1))
    if host.runs:
        nemesis.struck(fault)


def compact(nemesis: ClusterNemesis, fault: Fault, host: Host) -> None:
    if not host.follows and host.store is not None:
        request, node = Compact(max(1, host.store.revision)), host.node
        nemesis.request(
            host, lambda: node.key_values.write(request, caller=UNRESTRICTED), lambda: nemesis.struck(fault)
        )


ACTS = {
    Kind.CRASH_IN_WRITE: crash_in_write, Kind.CRASH_IN_START: crash_in_start, Kind.CRASH_IN_TURN: crash_in_turn,
    Kind.PAUSE_IN_TURN: pause_in_turn, Kind.STOP: stop, Kind.WALL_STEP: wall_step, Kind.COMPACT: compact,
}  # fmt: skip
