"""The SWIM port of a real node of each kind: noise, damaged datagrams, and datagrams with a right checksum that make no
sense (issue 5, "Fuzzing"). What decoding makes of single cases is in tests/topology/swim/test_wire.py."""

from __future__ import annotations

import asyncio
import socket
from random import Random
from typing import Any

import msgpack
import pytest

from palisade.topology.swim import wire
from palisade.topology.swim.messages import Ack, Ping, PingRequest, RosterDigest, RosterMessage
from palisade.topology.swim.record import Record, SwimIdentity, SwimState
from palisade.topology.swim.wire import Wire
from tests.support.fuzz_ground import Ground, watched
from tests.support.fuzzing import Rounds, anything, changed, damaged
from tests.support.processes import NodeProcess

pytestmark = pytest.mark.e2e

BESIDE = 50
STRANGER = SwimIdentity("x1", "abc")
RUMOUR = Record("x2", "127.0.0.1:9", "def", 3, SwimState.SUSPECT, (("role", "follower"),))


def messages(node: NodeProcess) -> list[Any]:
    own = SwimIdentity(node.id, "unknown")
    about = Record(node.id, node.peer, "old", 1, SwimState.DEAD)
    return [
        Ping(STRANGER, 1, own, (RUMOUR,)),
        PingRequest(STRANGER, 2, own, node.peer, (RUMOUR,)),
        Ack(STRANGER, 3, own, (RUMOUR, about)),
        RosterDigest(STRANGER, 7, ()),
        RosterMessage(STRANGER, True, (RUMOUR, about)),
    ]


def datagram(node: NodeProcess, dice: Random, *, whole: bool) -> bytes:
    """`whole`: with a correct checksum, whatever its content; usually of this cluster."""
    made = Wire("e2e" if dice.random() < 0.95 else "other").encode(dice.choice(messages(node)))
    if not whole:
        return damaged(made, dice) if dice.random() < 0.8 else dice.randbytes(dice.choice([0, 1, 22, 60, 1400, 9000]))
    body = changed(msgpack.unpackb(made[wire.HEAD_BYTES :]), dice)
    if dice.random() < 0.1:
        body = anything(dice)
    try:
        packed = msgpack.packb(body)
    except (ValueError, OverflowError):
        return made
    head = made[:5] + bytes([dice.choice([made[5], made[5], *range(9)])]) + made[6:14]
    return head + wire._hash(head + packed, head[6:]) + packed


@pytest.mark.parametrize("whole", [False, True], ids=["damaged", "whole"])
@pytest.mark.parametrize("kind", ["member", "follower", "waiting"])
async def test_invalid_datagrams_disturb_no_node(ground: Ground, kind: str, whole: bool, rounds: Rounds) -> None:
    node: NodeProcess = getattr(ground, kind)
    host, _, port = node.peer.rpartition(":")
    async with watched(node, ground.member):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            for dice in rounds:
                for _ in range(BESIDE):
                    stranger.sendto(datagram(node, dice, whole=whole), (host, int(port)))
                await asyncio.sleep(0.01)
        topology = await node.get("/v1/topology")
    assert topology is not None
    assert topology["http_status"] == 200
    (own,) = [row for row in topology["physical"] if row["id"] == node.id]
    assert own["state"] == "alive", own
