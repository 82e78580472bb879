"""Faults during a snapshot of the Raft group: its receiver dies, its sender is cut off, or the receiver is removed from
the group, so that the membership changes around the snapshot.

A transfer takes milliseconds, so no fault at a fixed time would hit it: the trap waits for a piece.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from palisade.raftgroup.messages import MessageKind
from palisade.raftgroup.snapshot_transfer import SnapshotMessage
from tests.sim.world import World

PIECES_MAX = 3
"""Few snapshots have more pieces."""


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
