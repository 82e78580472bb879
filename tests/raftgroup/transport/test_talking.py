"""Messages between members: order, size, grouping, and messages that are not sent."""

from __future__ import annotations

import random
from typing import Any

import pytest

from palisade.raftgroup.handshake import PING
from palisade.raftgroup.peer_connection import TransportLimits
from tests.support.loopback import (
    IGNORE_POLICY_WARNING,
    KIND,
    Start,
    connect,
)

pytestmark = IGNORE_POLICY_WARNING


async def test_three_members_connect_and_exchange_messages(start: Start) -> None:
    members = [await start(name) for name in ("n1", "n2", "n3")]
    await connect(*members)
    for sender in members:
        for target in members:
            assert sender.peers.send(target.id, KIND, [sender.id, b"\x00\xff", None]) is (sender is not target)
    for member in members:
        await member.recorder.until(lambda member=member: len(member.recorder.messages) == 2)
        others = sorted(other.id for other in members if other is not member)
        assert sorted(member.recorder.messages) == [(other, KIND, [other, b"\x00\xff", None]) for other in others]


async def test_messages_arrive_in_the_order_sent(start: Start) -> None:
    one, two = await start("n1"), await start("n2")
    await connect(one, two)
    for number in range(5_000):
        assert one.peers.send("n2", KIND, [number, b"x" * (number % 700)])
    await two.recorder.until(lambda: len(two.recorder.messages) == 5_000)
    assert [body[0] for _, _, body in two.recorder.messages] == list(range(5_000))


async def test_frame_of_many_mebibytes_arrives_whole(start: Start) -> None:
    one, two = await start("n1"), await start("n2")
    await connect(one, two)
    data = random.Random(3).randbytes(20 * 1024 * 1024)
    assert one.peers.send("n2", KIND, data)
    assert one.peers.queued_bytes("n2") > len(data)
    await two.recorder.until(lambda: bool(two.recorder.messages))
    assert two.recorder.messages == [("n2".replace("2", "1"), KIND, data)]
    await one.recorder.until(lambda: one.peers.queued_bytes("n2") == 0)


async def test_messages_of_one_turn_leave_in_one_write(start: Start) -> None:
    one, two = await start("n1"), await start("n2")
    await connect(one, two)
    transport = one.peers._outgoing["n2"].transport
    assert transport is not None
    writes: list[int] = []

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(transport, name)

        def writelines(self, frames: list[bytes]) -> None:
            writes.append(len(frames))
            transport.writelines(frames)

    one.peers._outgoing["n2"].transport = Counting()  # type: ignore[assignment]
    for number in range(100):
        one.peers.send("n2", KIND, number)
    await two.recorder.until(lambda: len(two.recorder.messages) == 100)
    assert writes == [100]


async def test_send_to_an_unconnected_member_returns_false(start: Start) -> None:
    one = await start("n1")
    assert one.peers.send("n2", KIND, "hello") is False
    assert one.peers.queued_bytes("n2") == 0
    assert one.peers.connected() == frozenset()


async def test_transport_kind_is_refused_as_a_caller_error(start: Start) -> None:
    one = await start("n1")
    with pytest.raises(ValueError, match="begin at 16"):
        one.peers.send("n2", PING, None)


async def test_message_beyond_the_frame_limit_is_not_sent(start: Start) -> None:
    limits = TransportLimits(frame_bytes_max=100_000)
    one, two = await start("n1", limits=limits), await start("n2", limits=limits)
    await connect(one, two)
    assert one.peers.send("n2", KIND, b"x" * 200_000) is False
    assert one.peers.send("n2", KIND, "small") is True
    await two.recorder.until(lambda: two.recorder.messages == [("n1", KIND, "small")])
