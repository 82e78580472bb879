"""Faults during a snapshot of the Raft group: its receiver dies, its sender is cut off, or the receiver is removed from
the group, so that the membership changes around the snapshot.

A transfer takes milliseconds, so no fault at a fixed time would hit it: the trap waits for a piece.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from palisade.raftgroup.messages import MessageKind
from palisade.raftgroup.snapshot_transfer import SnapshotMessage
from tests.sim.faults import Fault
from tests.sim.group_faults import take_out, transfer_from
from tests.sim.link_faults import block, both_ways
from tests.sim.node import Host
from tests.sim.world import World

if TYPE_CHECKING:
    from tests.sim.cluster_nemesis import ClusterNemesis

PIECES_MAX = 3
"""Few snapshots have more pieces."""


SENDER_CUT_OFF_S = 3.0


class Trouble(enum.Enum):
    """To which end of the transfer something happens, or to the membership."""

    RECEIVER = "receiver"
    SENDER = "sender"
    MEMBERSHIP = "membership"


def trouble_of(amount: float) -> tuple[Trouble, int]:
    """Drawn by `amount` (0 to 1): the fault, and the number of the piece at which it happens."""
    piece = 1 + int(amount * 8 * PIECES_MAX) % PIECES_MAX
    if amount < 0.375:
        return Trouble.RECEIVER, piece
    return (Trouble.MEMBERSHIP if amount < 0.5 else Trouble.SENDER), piece


def at_a_piece(world: World, receiver: str, number: int, act: Callable[[str], None]) -> None:
    """Call `act` with the sender when so many pieces have left for the receiver, once."""
    network, before = world.network, world.network.overhear
    left = number

    def overhear(sender: str, to: str, kind: int, body: Any) -> None:
        nonlocal left
        before(sender, to, kind, body)
        if kind == MessageKind.SNAPSHOT and to == receiver and body[0] == SnapshotMessage.CHUNK and left:
            left -= 1
            if not left:
                world.simulation.after(0.0, lambda: act(sender))

    network.overhear = overhear


def wipe_and_more(nemesis: ClusterNemesis, fault: Fault, host: Host) -> None:
    if not nemesis.may_lose_disk(host):
        return
    host.wipe()
    nemesis.start_after(fault.for_s, host)
    if host.follows:
        return

    def trouble(sender: str) -> None:
        if not nemesis.going or nemesis.removed:
            return
        nemesis.struck(fault)
        nemesis.world.count(f"snapshot trouble: {kind.value}")
        if kind is Trouble.RECEIVER:
            host.kill()
            nemesis.start_after(fault.for_s, host)
        elif kind is Trouble.MEMBERSHIP:
            take_out(nemesis, host, fault.for_s)
        else:
            block(nemesis, both_ways([sender], [host.id]), SENDER_CUT_OFF_S)
            transfer_from(nemesis, nemesis.world.hosts[sender], None)

    kind, piece = trouble_of(fault.amount)
    at_a_piece(nemesis.world, host.id, piece, trouble)
