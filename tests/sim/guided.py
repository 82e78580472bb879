"""Faults that wait for a certain moment, which they would hardly hit by chance: a node in the middle of something."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from palisade.topology.join_state import JoinPhase
from tests.sim.faults import Fault, Kind
from tests.sim.link_faults import block, both_ways, others
from tests.sim.machine_faults import stand_still
from tests.sim.node import Host
from tests.sim.node_faults import stop

if TYPE_CHECKING:
    from tests.sim.cluster_nemesis import ClusterNemesis

LOOK_S = 0.01
SHORT_LOOK_S = 0.0005
"""Shorter than most phases of a start are."""
SHORT_LOOKS = 6000
LOOKS = 500
ON_ITS_WAY = (JoinPhase.SEEKING, JoinPhase.JOINING, JoinPhase.RECOVERING, JoinPhase.FINISHING)
SUSPECTED_S = 2.5
"""Time after which others have noticed that it does not respond."""
DEAD_S = 4.0
"""Time after which they consider it dead."""
ASKED_LOOK_S = 0.0002
"""More often than a message takes to the leader and back."""
ASKED_LOOKS = 200
DROPPED_S = 8.0
"""Time after which the leader has dropped a node that it does not see."""


def when(
    nemesis: ClusterNemesis,
    host: Host,
    phase: JoinPhase,
    act: Callable[[], None],
    looks: int = LOOKS,
    look_s: float = LOOK_S,
) -> None:
    """Call `act` as soon as the node is in that phase; never if that takes too long."""

    def look() -> None:
        if host.node is not None and host.node.topology.member.life.phase is phase:
            act()
        elif looks:
            when(nemesis, host, phase, act, looks - 1, look_s)

    nemesis.later(look_s, look)


def stop_in_start(nemesis: ClusterNemesis, fault: Fault, host: Host) -> None:
    """It starts, and is stopped before it serves anything; the amount selects how far it gets."""
    phase = ON_ITS_WAY[int(fault.amount * len(ON_ITS_WAY))]
    host.kill()
    nemesis.start_after(fault.for_s, host)
    nemesis.later(
        fault.for_s, lambda: when(nemesis, host, phase, lambda: stop(nemesis, fault, host), SHORT_LOOKS, SHORT_LOOK_S)
    )


def dropped_in_recovery(nemesis: ClusterNemesis, fault: Fault, host: Host) -> None:
    """It starts, and is isolated while it recovers, until the cluster has dropped it: it has to join again."""
    host.kill()

    def cut() -> None:
        pairs = both_ways([host.id], others(nemesis, host.id))
        block(nemesis, pairs, DROPPED_S, lambda: nemesis.struck(fault))

    nemesis.start_after(fault.for_s, host)
    nemesis.later(fault.for_s, lambda: when(nemesis, host, JoinPhase.RECOVERING, cut))


def stop_suspected(nemesis: ClusterNemesis, fault: Fault, host: Host) -> None:
    """It is isolated, so that it is suspected, and, for a high amount, considered dead; then it leaves in order."""
    unheard_s = SUSPECTED_S if fault.amount < 0.5 else DEAD_S
    block(nemesis, [(other, host.id) for other in others(nemesis, host.id)], unheard_s + 0.5)
    nemesis.later(unheard_s, lambda: stop(nemesis, fault, host))


def pause_before_grant(nemesis: ClusterNemesis, fault: Fault, host: Host) -> None:
    """It requests a lease, and reads the grant when that has expired: first of all, since it is the oldest message."""
    process, holder = host.process, host.part.holder if host.part is not None else None
    if process is None or process.dead or holder is None:
        return
    asks_at = holder.core.next_renewal()
    before_s = max(asks_at - process.now(), 0.0)

    def look(looks: int) -> None:
        if host.process is not process or process.dead:
            return
        if holder.core.next_renewal() > asks_at:
            process.pause()
            nemesis.struck(fault)
            nemesis.later(host.part.timing.proceed_s() + fault.for_s, process.resume)
        elif looks:
            nemesis.later(ASKED_LOOK_S, lambda: look(looks - 1))

    nemesis.later(0.97 * before_s, lambda: look(ASKED_LOOKS))


def in_read(nemesis: ClusterNemesis, fault: Fault, host: Host, meanwhile: Callable[[], None] = lambda: None) -> None:
    """The reader beside the node is suspended between two steps of one of its next reads; `meanwhile` is called
    then."""
    reader = host.reader
    if reader is None:
        return

    def stopped() -> None:
        nemesis.struck(fault)
        nemesis.later(fault.for_s, reader.process.resume)
        meanwhile()

    reader.steps.stop_at(fault.amount, stopped)


def restart_in_read(nemesis: ClusterNemesis, fault: Fault, host: Host) -> None:
    def restarted() -> None:
        if host.runs:
            host.kill()
            nemesis.start_after(0.0, host)

    in_read(nemesis, fault, host, restarted)


def suspend(nemesis: ClusterNemesis, fault: Fault, host: Host) -> None:
    in_read(nemesis, fault, host, lambda: stand_still(nemesis, fault, host))


ACTS = {
    Kind.STOP_IN_START: stop_in_start, Kind.DROPPED_IN_RECOVERY: dropped_in_recovery,
    Kind.STOP_SUSPECTED: stop_suspected, Kind.PAUSE_BEFORE_GRANT: pause_before_grant, Kind.PAUSE_IN_READ: in_read,
    Kind.RESTART_IN_READ: restart_in_read, Kind.SUSPEND: suspend,
}  # fmt: skip
