"""The contract of the network between members (raftgroup/ports.py), for real sockets and the simulated one."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

import pytest

from palisade.raftgroup.peer_connection import TransportLimits
from palisade.raftgroup.ports import Peers
from palisade.raftgroup.tcp_transport import TcpPeers
from tests.support.raft_network import Network, SimPeers
from tests.support.recorder import Recorder
from tests.support.simulation import Process, Simulation

KIND = 20


class Member:
    """`receiver` records the callbacks of the network."""

    def __init__(self, peers: Peers, recorder: Recorder) -> None:
        self.peers = peers
        self.recorder = recorder

    @property
    def id(self) -> str:
        return self.recorder.member


class World(Protocol):
    async def start(self, member: str, cluster: str = "c1") -> Member: ...
    async def stop(self, member: Member) -> None: ...
    async def until(self, condition: Callable[[], bool]) -> None: ...
    def address(self, member: str) -> str: ...
    async def end(self) -> None: ...


class RealWorld:
    """Loopback. A returning member has its former address."""

    def __init__(self) -> None:
        self._members: list[Member] = []
        self._addresses: dict[str, str] = {}

    async def start(self, member: str, cluster: str = "c1") -> Member:
        limits = TransportLimits(redial_min_s=0.01, redial_max_s=0.05)
        peers = TcpPeers(self._addresses.get(member, "127.0.0.1:0"), random.Random(1), limits=limits)
        made = Member(peers, Recorder(member, cluster))
        await peers.start(made.recorder)
        self._addresses[member] = peers.address
        self._members.append(made)
        return made

    async def stop(self, member: Member) -> None:
        await member.peers.close()

    async def until(self, condition: Callable[[], bool]) -> None:
        await Recorder("anybody").until(condition)

    def address(self, member: str) -> str:
        return self._addresses[member]

    async def end(self) -> None:
        for member in self._members:
            await member.peers.close()


class SimulatedWorld:
    def __init__(self) -> None:
        self._simulation = Simulation(1)
        self._network = Network(self._simulation)
        self._processes: dict[int, Process] = {}

    async def start(self, member: str, cluster: str = "c1") -> Member:
        process = self._simulation.process(member)
        made = Member(SimPeers(self._network, member, process), Recorder(member, cluster))
        self._processes[id(made)] = process
        self._simulation.run(process, made.peers.start(made.recorder))
        return made

    async def stop(self, member: Member) -> None:
        self._simulation.run(self._processes[id(member)], member.peers.close())

    async def until(self, condition: Callable[[], bool]) -> None:
        self._simulation.run_until(condition, within_s=60)

    def address(self, member: str) -> str:
        return f"{member}:1"

    async def end(self) -> None:
        """No state outside the test."""


@pytest.fixture(params=[RealWorld, SimulatedWorld], ids=["sockets", "simulated"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    made = request.param()
    yield made
    await made.end()


def introduce(world: World, *members: Member) -> None:
    for member in members:
        member.peers.set_members({other.id: world.address(other.id) for other in members if other is not member})


async def connect(world: World, *members: Member) -> None:
    introduce(world, *members)
    everybody = {member.id for member in members}
    await world.until(lambda: all(m.peers.connected() == everybody - {m.id} for m in members))


async def test_messages_arrive_once_in_order_and_as_msgpack_types(world: World) -> None:
    one, two, three = [await world.start(name) for name in ("n1", "n2", "n3")]
    await connect(world, one, two, three)
    for number in range(500):
        assert one.peers.send("n2", KIND, (number, b"\x00", "text", None, {"k": [True]}))
    await world.until(lambda: len(two.recorder.messages) == 500)
    assert two.recorder.messages == [("n1", KIND, [n, b"\x00", "text", None, {"k": [True]}]) for n in range(500)]
    assert three.recorder.messages == []


async def test_message_is_encoded_when_it_is_sent(world: World) -> None:
    one, two = await world.start("n1"), await world.start("n2")
    await connect(world, one, two)
    body: list[Any] = [1, 2]
    one.peers.send("n2", KIND, body)
    body.append(3)
    await world.until(lambda: bool(two.recorder.messages))
    assert two.recorder.messages[0][2] == [1, 2]


async def test_connected_member_can_be_sent_to(world: World) -> None:
    one, two = await world.start("n1"), await world.start("n2")
    assert one.peers.connected() == frozenset()
    assert one.peers.send("n2", KIND, "too early") is False
    assert one.peers.queued_bytes("n2") == 0
    await connect(world, one, two)
    assert one.recorder.connected == ["n2"]
    assert one.recorder.greetings[-1] == two.recorder.greeting()
    assert one.peers.send("n2", KIND, "in time") is True
    await world.until(lambda: two.recorder.messages == [("n1", KIND, "in time")])


async def test_refused_member_learns_the_reason_and_is_not_connected(world: World) -> None:
    one, two = await world.start("n1", "c1"), await world.start("n2", "c2")
    introduce(world, one, two)
    await world.until(lambda: bool(one.recorder.refused or two.recorder.refused))
    refused = one.recorder.refused or two.recorder.refused
    assert refused[0][1].startswith("this is cluster c")
    assert one.recorder.connected == two.recorder.connected == []
    assert one.peers.send("n2", KIND, "no") is two.peers.send("n1", KIND, "no") is False


async def test_stopped_member_is_disconnected_and_reconnected(world: World) -> None:
    one, two = await world.start("n1"), await world.start("n2")
    await connect(world, one, two)
    await world.stop(two)
    await world.until(lambda: one.recorder.disconnected == ["n2"])
    assert one.peers.connected() == frozenset()
    again = await world.start("n2")
    await connect(world, one, again)
    assert one.recorder.connected == ["n2", "n2"]
    assert one.peers.send("n2", KIND, "welcome back")
    await world.until(lambda: again.recorder.messages == [("n1", KIND, "welcome back")])
    assert two.recorder.messages == []


async def test_member_stopped_during_the_handshake_is_disconnected_and_reconnected(world: World) -> None:
    """tests/sim, scenario storm, seed 119: the other side kept a dead connection, and refused every later one."""
    one, two = await world.start("n1"), await world.start("n2")
    introduce(world, one, two)
    await world.until(lambda: two.recorder.connected == ["n1"])
    await world.stop(one)
    await world.until(lambda: two.recorder.disconnected == ["n1"])
    again = await world.start("n1")
    await connect(world, again, two)
    assert two.peers.send("n1", KIND, "welcome")
    await world.until(lambda: again.recorder.messages == [("n2", KIND, "welcome")])


async def test_stopped_member_receives_nothing(world: World) -> None:
    one, two = await world.start("n1"), await world.start("n2")
    await connect(world, one, two)
    one.peers.send("n2", KIND, "late")
    await world.stop(two)
    received = list(two.recorder.messages)
    await world.until(lambda: one.recorder.disconnected == ["n2"])
    assert two.recorder.messages == received
    assert two.recorder.disconnected == []
    assert two.peers.send("n1", KIND, "too late") is False


async def test_unlisted_member_is_disconnected(world: World) -> None:
    one, two, three = [await world.start(name) for name in ("n1", "n2", "n3")]
    await connect(world, one, two, three)
    one.peers.set_members({"n2": world.address("n2")})
    await world.until(lambda: one.recorder.disconnected == ["n3"])
    assert one.peers.connected() == {"n2"}
    assert one.peers.send("n3", KIND, "no") is False


async def test_unlisted_member_loses_its_own_connection_and_is_judged_again(world: World) -> None:
    """A removed member that is cut off without notice would wait forever for a leader that has dropped it."""
    one, two = [await world.start(name) for name in ("n1", "n2")]
    await connect(world, one, two)
    one.recorder.cluster = "without n2"
    one.peers.set_members({})
    await world.until(lambda: two.recorder.refused != [])
    assert two.recorder.refused[0] == ("n1", "this is cluster without n2, not c1")
