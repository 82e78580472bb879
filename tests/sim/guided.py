"""Faults that wait for a moment, since by chance they would hardly meet it: a node in the middle of something."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from node.topology.life import Phase
from tests.sim.node import Host

if TYPE_CHECKING:
    from tests.sim.nemesis import Nemesis

LOOK_S = 0.01
LOOKS = 500
SUSPECTED_S = 2.5
"""By when others have found out that it does not answer."""
ASKED_LOOK_S = 0.0002
"""More often than a message takes to the leader and back."""
ASKED_LOOKS = 200
DROPPED_S = 8.0
"""By when the leader has dropped a node that it does not see."""


def when(nemesis: Nemesis, host: Host, phase: Phase, act: Callable[[], None], looks: int = LOOKS) -> None:
    """Call `act` as soon as the node is in that phase of its life; not at all if that takes too long."""

    def look() -> None:
        if host.node is not None and host.node.topology.member.life.phase is phase:
            act()
        elif looks:
            when(nemesis, host, phase, act, looks - 1)

    nemesis.later(LOOK_S, look)


def others(host: Host) -> list[str]:
    return [name for name in host.world.hosts if name != host.id]


def dropped_in_recovery(nemesis: Nemesis, host: Host, down_s: float) -> None:
    """It starts, and is cut off while it recovers, until the cluster has dropped it: it has to join again."""
    host.kill()

    def cut() -> None:
        pairs = [(host.id, other) for other in others(host)]
        nemesis.block([*pairs, *((other, own) for own, other in pairs)], DROPPED_S)

    nemesis.later(down_s, lambda: nemesis.start_at(host))
    nemesis.later(down_s, lambda: when(nemesis, host, Phase.RECOVERING, cut))


def stops_unheard(nemesis: Nemesis, host: Host, stop: Callable[[], None]) -> None:
    """It hears nobody, so that it is suspected, and says good-bye before it is dead."""
    nemesis.block([(other, host.id) for other in others(host)], SUSPECTED_S + 0.5)
    nemesis.later(SUSPECTED_S, stop)


def paused_before_its_grant(nemesis: Nemesis, host: Host, longer_s: float) -> None:
    """It asks for a lease, and finds the answer when that has run out: read first, since it has lain there longest."""
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
            nemesis.later(host.part.timing.proceed_s() + longer_s, process.resume)
        elif looks:
            nemesis.later(ASKED_LOOK_S, lambda: look(looks - 1))

    nemesis.later(0.97 * before_s, lambda: look(ASKED_LOOKS))
