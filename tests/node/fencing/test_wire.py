"""Messages between holders and the leader survive encoding, and nothing else is accepted."""

from __future__ import annotations

import random
from typing import Any

import msgpack
import pytest

from palisade.fencing.messages import (
    Behind,
    Elsewhere,
    FencedMessage,
    GrantMessage,
    Hello,
    HolderId,
    HolderPhase,
    JoinMessage,
    RefusedMessage,
    Release,
    Renew,
    StagedMessage,
    StageMessage,
    WelcomeMessage,
)
from palisade.wire.fence_messages import BadMessage, FenceFrames, Message, pack, unpack

MESSAGES: list[Message] = [
    Hello(HolderId("n1", "v", 3), True, 3.0, HolderPhase.ACTIVE, 2, True, 17, 20, 3.31),
    JoinMessage(2, 20),
    Renew(12.5, 17, HolderPhase.RECOVERING, True, 3.0, 3.31),
    StagedMessage(18),
    FencedMessage(4, 13.5),
    WelcomeMessage(4, 30, None),
    WelcomeMessage(4, 30, 29),
    Elsewhere(None),
    Elsewhere("127.0.0.1:7601"),
    RefusedMessage("no"),
    StageMessage(4, 2, 17, 30, ((18, b"k", b"body"), (30, b"l", None))),
    Behind(4, 2, 30),
    GrantMessage(4, 3, 12.5, 30),
    Release(4, 30),
]


def travelled(value: Any) -> Any:
    return msgpack.unpackb(msgpack.packb(value))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_every_message_survives(message: Message) -> None:
    assert unpack(travelled(pack(message))) == message


@pytest.mark.parametrize("body", [None, 7, [], ["x"], [99], [True, 1], {"a": 1}, [4], [4, "x"], [4, -1], [4, True]])
def test_invalid_message_is_refused(body: Any) -> None:
    with pytest.raises(BadMessage):
        unpack(body)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_message_with_a_wrong_or_missing_field_is_refused(message: Message) -> None:
    """Any bytes are a message or raise BadMessage, never another error."""
    packed = travelled(pack(message))
    chance = random.Random(1)
    wrong = [None, "", b"", -1, 2**70, 1.5, float("nan"), True, [], [[1, 2]], [[1, b"k", 3]], {}]
    for _ in range(300):
        body = list(packed)
        body[chance.randrange(len(body))] = chance.choice(wrong)
        if chance.random() < 0.2:
            body.pop()
        try:
            unpack(body)
        except BadMessage:
            continue


def test_message_to_many_holders_is_encoded_once() -> None:
    frames = FenceFrames(18)
    first = frames.of(MESSAGES[10])
    assert frames.of(MESSAGES[10]) is first
    assert frames.of(MESSAGES[11]) != first
