"""Faults of the Raft group: another leader, a lost disk of a member, a removed member."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from palisade.raftgroup.messages import MessageKind
from tests.sim.faults import Fault, Kind
from tests.sim.link_faults import block, others

if TYPE_CHECKING:
    from tests.sim.nemesis import Nemesis
    from tests.support.machine import Machine

DEAF = 0.7
"""A leader that hands over with a greater amount receives nothing from other nodes from that moment on."""
DEAF_S = 0.5
"""By then another node leads, and a lease that was computed before may still seem to hold."""
REMOVED_S = 1.0
"""The shortest time until a removed member is added again."""


def transfer(nemesis: Nemesis, fault: Fault, host: Machine) -> None:
    for leader in nemesis.world.leaders():
        target = host.id if host.id != leader.id and fault.amount < 0.5 else None
        if fault.amount > DEAF:
            deaf_when_it_hands_over(nemesis, leader, 2 * (fault.amount - DEAF) + DEAF_S)
        transfer_from(nemesis, leader, target, lambda: nemesis.struck(fault))


def transfer_from(
    nemesis: Nemesis, leader: Machine, target: str | None, struck: Callable[[], None] = lambda: None
) -> None:
    nemesis.request(leader, lambda: leader.group.transfer(target), struck)


def deaf_when_it_hands_over(nemesis: Nemesis, host: Machine, deaf_s: float) -> None:
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
                block(nemesis, [(other, host.id) for other in others(nemesis, host.id)], deaf_s)

    network.overhear = overhear


def wipe(nemesis: Nemesis, fault: Fault, host: Machine) -> None:
    if nemesis.may_lose_disk(host):
        host.wipe()
        nemesis.struck(fault)
        nemesis.start_after(fault.for_s, host)


def remove(nemesis: Nemesis, fault: Fault, host: Machine) -> None:
    if nemesis.may_lose_disk(host):
        take_out(nemesis, host, fault.for_s, lambda: nemesis.struck(fault))


def take_out(nemesis: Nemesis, host: Machine, for_s: float, struck: Callable[[], None] = lambda: None) -> None:
    """Remove it from the group; later it joins with a new disk."""
    for leader in nemesis.world.leaders():
        nemesis.request(leader, lambda leader=leader: leader.group.remove(host.id), struck)
    nemesis.removed[host.id] = None

    def anew() -> None:
        del nemesis.removed[host.id]
        host.wipe()
        nemesis.start_at(host)

    nemesis.later(REMOVED_S + for_s, anew)


ACTS = {Kind.TRANSFER: transfer, Kind.WIPE: wipe, Kind.REMOVE: remove}
