"""Faults during a snapshot of the Raft group: its receiver dies, or its sender is cut off.

A transfer takes milliseconds, so no fault at a fixed time would hit it: the trap waits for a piece.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from palisade.raftgroup.messages import MessageKind
from palisade.raftgroup.snapshot_transfer import SnapshotMessage
from tests.sim.world import World

PIECES_MAX = 3
"""Few snapshots have more pieces."""


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
