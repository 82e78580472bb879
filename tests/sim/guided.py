"""Faults that wait for a certain moment, which they would hardly hit by chance: a node in the middle of something."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from palisade.raftgroup.messages import MessageKind
from palisade.topology.join_state import JoinPhase
from tests.sim.faults import Fault
from tests.sim.local_data import PIN_LIFE_S
from tests.sim.node import Host
from tests.sim.vault_disk import Killed

if TYPE_CHECKING:
    from tests.sim.nemesis import Nemesis

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
DEAF_S = 0.5
"""By then another node leads, and a lease that was computed before may still seem to hold."""
EVICTION_STEPS = 12
"""Fewer than an eviction of the data of all keys has."""
DROPPED_S = 8.0
"""Time after which the leader has dropped a node that it does not see."""


def when(
    nemesis: Nemesis, host: Host, phase: JoinPhase, act: Callable[[], None], looks: int = LOOKS, look_s: float = LOOK_S
) -> None:
    """Call `act` as soon as the node is in that phase; never if that takes too long."""

    def look() -> None:
        if host.node is not None and host.node.topology.member.life.phase is phase:
            act()
        elif looks:
            when(nemesis, host, phase, act, looks - 1, look_s)

    nemesis.later(look_s, look)


def others(host: Host) -> list[str]:
    return [name for name in host.world.hosts if name != host.id]


def stopped_on_its_way(nemesis: Nemesis, host: Host, stop: Callable[[], None], down_s: float, amount: float) -> None:
    """It starts, and is stopped before it serves anything; `amount` selects how far it gets."""
    phase = ON_ITS_WAY[int(amount * len(ON_ITS_WAY))]
    host.kill()
    nemesis.later(down_s, lambda: nemesis.start_at(host))
    nemesis.later(down_s, lambda: when(nemesis, host, phase, stop, SHORT_LOOKS, SHORT_LOOK_S))


def dropped_in_recovery(nemesis: Nemesis, host: Host, down_s: float, struck: Callable[[], None]) -> None:
    """It starts, and is isolated while it recovers, until the cluster has dropped it: it has to join again."""
    host.kill()

    def cut() -> None:
        pairs = [(host.id, other) for other in others(host)]
        nemesis.links.block([*pairs, *((other, own) for own, other in pairs)], DROPPED_S, struck)

    nemesis.later(down_s, lambda: nemesis.start_at(host))
    nemesis.later(down_s, lambda: when(nemesis, host, JoinPhase.RECOVERING, cut))


def stops_unheard(nemesis: Nemesis, host: Host, stop: Callable[[], None], amount: float) -> None:
    """It is isolated, so that it is suspected, and, for a high `amount`, considered dead; then it leaves in order."""
    unheard_s = SUSPECTED_S if amount < 0.5 else DEAD_S
    nemesis.links.block([(other, host.id) for other in others(host)], unheard_s + 0.5)
    nemesis.later(unheard_s, stop)


def paused_before_its_grant(nemesis: Nemesis, host: Host, longer_s: float, struck: Callable[[], None]) -> None:
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
            struck()
            nemesis.later(host.part.timing.proceed_s() + longer_s, process.resume)
        elif looks:
            nemesis.later(ASKED_LOOK_S, lambda: look(looks - 1))

    nemesis.later(0.97 * before_s, lambda: look(ASKED_LOOKS))


def deaf_when_it_hands_over(nemesis: Nemesis, host: Host, deaf_s: float) -> None:
    """From the moment on when it orders another member to campaign it receives nothing from other nodes, only from
    clients: it has to know by itself that it must not serve by its lease any more."""
    network, before = nemesis.world.network, nemesis.world.network.overhear
    process, waits = host.process, True

    def overhear(sender: str, to: str, kind: int, body: Any) -> None:
        nonlocal waits
        before(sender, to, kind, body)
        if waits and kind == MessageKind.CAMPAIGN_NOW and sender == host.id:
            waits = False
            if host.process is process:
                nemesis.links.block([(other, host.id) for other in others(host)], deaf_s)

    network.overhear = overhear


def in_read(nemesis: Nemesis, host: Host, fault: Fault, meanwhile: Callable[[], None] = lambda: None) -> None:
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


def dies_in_eviction(nemesis: Nemesis, host: Host, fault: Fault) -> None:
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
        nemesis.later(PIN_LIFE_S + fault.for_s, lambda: nemesis.start_at(host))
        raise Killed

    shelf.on_step = stepped


def restarted(nemesis: Nemesis, host: Host) -> None:
    if host.runs:
        host.kill()
        nemesis.later(0.0, lambda: nemesis.start_at(host))
