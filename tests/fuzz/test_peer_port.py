"""The peer port of a real node: damaged frames, and valid frames with senseless content from an admitted peer (issue 5,
"Fuzzing").

A peer with a valid greeting is trusted as a member: Raft is made for nodes that fail, not for nodes that
lie. Thus a message that is one may well make a node follow another term. What must not happen is that one which is none
stops it, for good perhaps, if it gets into the log. Beyond tests/raftgroup/transport/test_strangers.py.
"""

from __future__ import annotations

import asyncio
import contextlib
from random import Random
from typing import Any

import pytest

from palisade.base.frames import FRAME_BYTES_MAX, FrameParser, encode
from palisade.raftgroup.errors import NodeFailed
from palisade.raftgroup.handshake import HELLO, PING, REFUSE, hello
from palisade.raftgroup.membership import Member, MemberRole
from palisade.raftgroup.messages import MessageKind, is_well_formed
from palisade.raftgroup.snapshot_transfer import acknowledge, chunk, done
from tests.support.fuzz_ground import Ground, say, watched
from tests.support.fuzzing import INTERESTING, Rounds, anything, changed, damaged
from tests.support.lone_replica import LoneReplica, storage, write
from tests.support.processes import NodeProcess

pytestmark = pytest.mark.e2e

BESIDE = 20
LEARNER = Member("n8", MemberRole.LEARNER, "i", {"peer": "127.0.0.1:1"}, becomes_voter=False)
ASKED: list[tuple[int, Any]] = [
    (MessageKind.FORWARD, [[1, [b"\x93\x01\xc0", b"\xc1"], 2], [2, [b""], 1]]),
    (MessageKind.REQUEST, [3, "read_index", []]),
    (MessageKind.REQUEST, [4, "add", [LEARNER.to_wire()]]),
    (MessageKind.REQUEST, [5, "promote", ["n8"]]),
    (MessageKind.REQUEST, [6, "remove", ["n8"]]),
    (MessageKind.REQUEST, [7, "transfer", ["n8"]]),
    (MessageKind.RESPONSE, [8, None, 17]),
    (MessageKind.FORWARD_REPLY, [[9, 0, 3, 1, [[1, 2]]]]),
    (MessageKind.FOUNDING, [{"n1": "a", "n2": "b"}]),
    (MessageKind.SNAPSHOT, acknowledge("a snapshot", 3)),
    (MessageKind.SNAPSHOT, done("a snapshot", False, "no")),
    (MessageKind.SNAPSHOT, chunk("a snapshot", 0, b"piece", False)),
    (MessageKind.PRE_VOTE, [2, 5, 1]),
    (MessageKind.PRE_VOTE_REPLY, [2, True, 1, "i"]),
    (MessageKind.VOTE, [2, True, "i"]),
    (MessageKind.APPEND_REPLY, [1, 4, True, 12.5, "i"]),
    (MessageKind.HEARTBEAT_REPLY, [1, 12.5, "i"]),
]
"""Requests that a leader may receive from a process that is not its follower."""


async def greeting_for(node: NodeProcess) -> dict[str, Any]:
    """One that is let in: what it has to agree with is what refusals say."""
    said = {"cluster": "e2e", "member": "x9", "incarnation": "i", "address": "127.0.0.1:1", "terms": "?", "knows": {}}
    greeting = {**said, "version": 0, "generation": 0, "origin": ""}
    heard = FrameParser().feed(await say(node.peer, encode(HELLO, hello(greeting)), Random(3), 1.0))
    assert heard[0][0] == REFUSE, heard
    terms = heard[0][1].partition("than this node (")[2].partition(")")[0]
    return greeting | {"terms": terms}


async def test_damaged_frames_end_their_connection(ground: Ground, rounds: Rounds) -> None:
    greeting = encode(HELLO, hello(await greeting_for(ground.member)))
    async with watched(ground.member, ground.member):
        for dice in rounds:
            sessions = []
            for _ in range(BESIDE):
                sent = b"".join(encode(*each) for each in dice.sample(ASKED, 2))
                first = damaged(greeting, dice) if dice.random() < 0.2 else greeting
                lie = dice.choice([FRAME_BYTES_MAX + 1, (1 << 31) - 1, (1 << 32) - 1]).to_bytes(4, "big") + sent * 20
                broken = lie if dice.random() < 0.1 else damaged(sent, dice)
                sessions.append(say(ground.member.peer, first + broken, dice, 0.02))
            await asyncio.gather(*sessions)


async def test_complete_invalid_messages_stop_no_member(ground: Ground, rounds: Rounds) -> None:
    """It stays the leader that it was, with the log that it had."""
    greeting = await greeting_for(ground.member)
    before = await ground.member.status()
    async with watched(ground.member, ground.member):
        for dice in rounds:
            sessions = []
            for _ in range(BESIDE):
                hello_ = hello(changed(greeting, dice) if dice.random() < 0.1 else greeting)
                sent = encode(HELLO, hello_) if fits(hello_) else b""
                for kind, body in dice.choices(ASKED, k=3):
                    made = changed(body, dice) if dice.random() < 0.9 else anything(dice)
                    sent += encode(kind, made) if fits(made) else encode(PING, None)
                sessions.append(say(ground.member.peer, sent, dice, 0.02))
            await asyncio.gather(*sessions)
    after = await ground.member.status()
    assert (after["term"], after["leader"]) == (before["term"], before["leader"])


def fits(body: Any) -> bool:
    with contextlib.suppress(ValueError, OverflowError):
        return bool(encode(0, body))
    return False


SAID: list[tuple[MessageKind, list[Any]]] = [
    (MessageKind.APPEND, [1, 0, 0, 0, 100.0, [[write(1, 1), 1], [write(2, 1), 1]]]),
    (MessageKind.APPEND, [2, 2, 2, 1, 100.0, []]),
    (MessageKind.HEARTBEAT, [2, 100.0]),
    (MessageKind.REQUEST_VOTE, [3, 5, 2, True]),
    (MessageKind.REQUEST_VOTE, [3, 5, 2, False]),
    (MessageKind.PRE_VOTE, [3, 5, 2]),
    (MessageKind.PRE_VOTE_REPLY, [2, True, 1, storage("n2")]),
    (MessageKind.VOTE, [2, True, storage("n2")]),
    (MessageKind.APPEND_REPLY, [1, 2, True, 100.0, storage("n2")]),
    (MessageKind.HEARTBEAT_REPLY, [1, 100.0, storage("n2")]),
    (MessageKind.CAMPAIGN_NOW, [1]),
]
TOLERATED = ("lost data", "two leaders in one term", "has lost")
"""What a node stops for on purpose: a member that contradicts what is committed, or itself."""


def test_messages_of_members_never_fail_half_way(rounds: Rounds) -> None:
    """Of a shape that is let through, and with numbers that are at the edge of what numbers can be."""
    for dice in rounds:
        lone = LoneReplica(seed=dice.randrange(1000))
        with contextlib.suppress(AssertionError):
            if dice.random() < 0.5:
                lone.leads()
        for _ in range(30):
            kind, body = dice.choice(SAID)
            made = [dice.choice(INTERESTING) if type(each) is int and dice.random() < 0.2 else each for each in body]
            made = changed(made, dice) if dice.random() < 0.7 else made
            if not is_well_formed(kind, made):
                continue
            try:
                lone.replica.receive(dice.choice(["n2", "n3", "x9"]), kind, made)
                lone.tick()
                lone.sync()
                lone.waits(dice.choice([0.0, 0.1, 3.0]))
            except NodeFailed as error:
                is_deliberate_stop(error, rounds, kind, made)
                break
        else:
            lone.crash()


def is_deliberate_stop(error: NodeFailed, rounds: Rounds, kind: MessageKind, body: Any) -> None:
    assert any(each in str(error) for each in TOLERATED), (rounds, kind.name, body, str(error))
