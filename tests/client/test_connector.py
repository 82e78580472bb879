"""Which addresses a client tries, and when: a frozen node delays it for a moment only (issue 16)."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from palisade.api.stream.server import StreamServer
from palisade.client import Client
from palisade.client import connector as connector_module
from palisade.client.connection import ClientConnection
from palisade.client.connector import CONNECT_S, STAGGER_S, Connector, Whereabouts
from palisade.client.endpoints import Endpoints
from palisade.raftgroup.errors import Unavailable
from palisade.raftgroup.membership import Member, MemberRole
from palisade.service.key_values import KeyValues
from palisade.wire.auth_errors import Unauthenticated
from tests.support.fake_group import FakeGroup
from tests.support.simulation import Simulation

ADDRESSES = [f"n{number}:1" for number in (1, 2, 3)]
Response = float | Exception
"""Of a node: after how long, or a failure at once."""
NEVER = float("inf")


class FakeLink:
    def __init__(self) -> None:
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None:
        self.aborted = True


class Nodes(Connector):
    """`tried`: each address with the time; `responses`: of each of them."""

    def __init__(self, responses: list[Response], timeout_s: float = 5.0) -> None:
        self.route = Endpoints(ADDRESSES)
        super().__init__(self.route, lambda kind, body: None, timeout_s)
        self.responses = dict(zip(ADDRESSES, responses, strict=True))
        self.tried: list[tuple[str, float]] = []
        self.links: dict[str, FakeLink] = {}
        self.failures: dict[str, str] = {}
        self.wheres: dict[str, Whereabouts] = {}

    async def _greeted(self, address: str) -> tuple[ClientConnection, Whereabouts]:
        now = asyncio.get_running_loop().time
        self.tried.append((address, round(now() - self.began, 3)))
        response = self.responses[address]
        if isinstance(response, Exception):
            raise response
        async with asyncio.timeout(CONNECT_S):
            await asyncio.sleep(min(response, 100.0))
        link: Any = FakeLink()
        self.links[address] = link
        return link, self.wheres.get(address, Whereabouts(address, address, address, {}))

    async def reach(self) -> tuple[str, float]:
        """The address, and the time that it took."""
        now = asyncio.get_running_loop().time
        self.began = now()
        _, found = await self.connect(lambda address, error: self.failures.update({address: type(error).__name__}))
        assert self.silent == ()
        return found.address, round(now() - self.began, 3)


@pytest.fixture
def simulation() -> Iterator[Simulation]:
    simulation = Simulation(1)
    yield simulation
    simulation.close()


def test_nodes_that_do_not_answer_are_known_until_a_node_knows_the_leader(simulation: Simulation) -> None:
    """A lookup without a leader did not name them (issue 16)."""
    nodes = Nodes([NEVER, NEVER, 0.0])
    nodes.wheres["n3:1"] = Whereabouts("n3:1", "n3", None, {"n1": "n1:1", "n3": "n3:1"})

    async def run() -> None:
        _, found = await nodes.connect(lambda *_: None)
        assert nodes.unreached == {"n1:1": "no answer", "n2:1": "no answer"}
        assert found.trouble(None, nodes.unreached) == (
            "n3 knows no leader, and no other node that knows one has been found; n1 at n1:1, n2:1: no answer"
        )
        nodes.responses["n2:1"] = ConnectionRefusedError(errno.ECONNREFUSED, "")
        assert await nodes.better(found) is None
        assert nodes.unreached == {"n1:1": "no answer in time", "n2:1": "connection refused"}
        nodes.responses["n1:1"] = 0.0
        assert await nodes.better(found) is not None
        assert nodes.unreached == {}

    nodes.began = 0.0
    simulation.run(simulation.process("client"), run())


def reached(simulation: Simulation, nodes: Nodes) -> tuple[str, float]:
    found: tuple[str, float] = simulation.run(simulation.process("client"), nodes.reach())
    return found


def test_node_that_responds_in_time_is_the_only_one_tried(simulation: Simulation) -> None:
    nodes = Nodes([STAGGER_S - 0.01, 0.0, 0.0])
    assert reached(simulation, nodes) == ("n1:1", STAGGER_S - 0.01)
    assert nodes.tried == [("n1:1", 0.0)]


def test_frozen_nodes_delay_the_connection_to_the_next_one_for_a_moment_each(simulation: Simulation) -> None:
    """With n1 and n2 frozen, a command needed 4 s of its 5 s to reach n3."""
    nodes = Nodes([NEVER, NEVER, 0.01])
    assert reached(simulation, nodes) == ("n3:1", round(2 * STAGGER_S + 0.01, 3))
    assert nodes.tried == [("n1:1", 0.0), ("n2:1", STAGGER_S), ("n3:1", 2 * STAGGER_S)]
    assert nodes.failures == {}
    assert nodes.route.current() == "n3:1"


def test_slow_node_that_responds_first_after_all_is_used(simulation: Simulation) -> None:
    nodes = Nodes([STAGGER_S + 0.1, NEVER, 0.0])
    assert reached(simulation, nodes) == ("n1:1", STAGGER_S + 0.1)
    assert nodes.route.current() == "n1:1"


def test_connection_that_lost_the_race_is_closed(simulation: Simulation) -> None:
    """Both nodes respond in one turn of the event loop."""
    nodes = Nodes([STAGGER_S + 0.1, 0.1, 0.0])
    assert reached(simulation, nodes) == ("n1:1", STAGGER_S + 0.1)
    assert {address: link.aborted for address, link in nodes.links.items()} == {"n1:1": False, "n2:1": True}


def test_refusal_while_another_node_is_silent_is_reported_and_the_next_one_tried(simulation: Simulation) -> None:
    nodes = Nodes([NEVER, ConnectionRefusedError(), 0.01])
    assert reached(simulation, nodes) == ("n3:1", round(STAGGER_S + 0.01, 3))
    assert nodes.failures == {"n2:1": "ConnectionRefusedError"}


def test_first_address_that_refuses_at_once_is_left_to_the_session(simulation: Simulation) -> None:
    """It waits a little before it tries the next one."""
    nodes = Nodes([ConnectionRefusedError(), 0.0, 0.0])
    with pytest.raises(ConnectionRefusedError):
        reached(simulation, nodes)
    assert nodes.tried == [("n1:1", 0.0)]


def test_every_frozen_address_is_reported_once_it_has_had_its_time(simulation: Simulation) -> None:
    nodes = Nodes([NEVER, Unavailable("it stops"), NEVER])
    with pytest.raises(TimeoutError):
        reached(simulation, nodes)
    assert nodes.failures == {"n1:1": "TimeoutError", "n2:1": "Unavailable", "n3:1": "TimeoutError"}


def test_refused_credentials_end_all_attempts(simulation: Simulation) -> None:
    nodes = Nodes([NEVER, Unauthenticated("who?"), 0.01])
    with pytest.raises(Unauthenticated):
        reached(simulation, nodes)
    assert [address for address, _ in nodes.tried] == ["n1:1", "n2:1"]
    assert nodes.silent == ()


def test_abandoned_connect_leaves_no_attempt_behind(simulation: Simulation) -> None:
    nodes = Nodes([NEVER, NEVER, NEVER])

    async def abandoned() -> int:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(nodes.reach(), 1.0)
        return len(asyncio.all_tasks())

    assert simulation.run(simulation.process("client"), abandoned()) == 1
    assert nodes.silent == ()


def test_leader_that_does_not_respond_is_named_meanwhile(simulation: Simulation) -> None:
    """A follower has responded; the leader that it names is frozen."""
    nodes, named = Nodes([0.01, NEVER, NEVER]), list[tuple[str, ...]]()
    follower = Whereabouts("n1:1", "m1", "m2", {"m2": "n2:1"})
    nodes.wheres["n1:1"] = follower

    async def looks() -> None:
        await asyncio.sleep(1.0)
        named.append(nodes.silent)

    async def both() -> tuple[str, float]:
        found, _ = await asyncio.gather(nodes.reach(), looks())
        return found

    assert simulation.run(simulation.process("client"), both()) == ("n1:1", round(2 * 0.01 + CONNECT_S, 3))
    assert named == [("n2:1",)]


@pytest.mark.parametrize(("timeout_s", "found_s"), [(2.0, 0.8), (5.0, 2.0), (60.0, 2.0)])
def test_leader_that_does_not_respond_leaves_time_for_the_request(
    simulation: Simulation, timeout_s: float, found_s: float
) -> None:
    """`--timeout 2` was spent at a leader that had just been frozen, although a node had answered (issue 16)."""
    nodes = Nodes([0.0, NEVER, NEVER], timeout_s)
    nodes.wheres["n1:1"] = Whereabouts("n1:1", "n1", "n3", {"n3": "n3:1"})
    assert simulation.run(simulation.process("client"), nodes.reach()) == ("n1:1", found_s)
    assert nodes.tried[:2] == [("n1:1", 0.0), ("n3:1", 0.0)]


def test_refusal_by_the_node_that_named_a_frozen_leader_is_reported(simulation: Simulation) -> None:
    """Its reason was lost: "connecting to n1, n2, n3: no answer yet" (issue 16)."""

    class Refusing(Nodes):
        async def _greeted(self, address: str) -> tuple[ClientConnection, Whereabouts]:
            if address == "n1:1" and self.tried:
                raise Unavailable("no leader is known")
            return await super()._greeted(address)

    nodes = Refusing([0.0, NEVER, NEVER])
    nodes.wheres["n1:1"] = Whereabouts("n1:1", "n1", "n3", {"n3": "n3:1"})
    with pytest.raises(Unavailable):
        simulation.run(simulation.process("client"), nodes.reach())
    assert nodes.failures == {"n1:1": "Unavailable"}


async def test_client_reaches_the_node_behind_two_frozen_ones(
    stream: StreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With real sockets: the kernel accepts connections for a frozen process."""
    monkeypatch.setattr(connector_module, "STAGGER_S", 0.02)
    monkeypatch.setattr(connector_module, "CONNECT_S", 60.0)
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        frozen = [f"127.0.0.1:{each.getsockname()[1]}" for each in (first, second)]
        async with Client([*frozen, f"127.0.0.1:{stream.port}"], timeout_s=30) as client:
            await client.put("a", "1")
            assert (await client.get("a")).value == b"1"


async def test_change_is_refused_after_a_frozen_leader_was_tried(
    stream: StreamServer, service: KeyValues, group: FakeGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node that named the frozen leader, and has no leader now, gave the change more time than the client had left:
    its outcome was unknown."""
    monkeypatch.setattr(connector_module, "CONNECT_S", 1.0)
    monkeypatch.setattr(service, "deadline_s", 5.0)
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        address = f"127.0.0.1:{frozen.getsockname()[1]}"
        group.belongs_to(group.members.with_member(Member("n9", MemberRole.LEARNER, "other", {"stream": address})))
        group.led_by("n9")
        asyncio.get_running_loop().call_later(0.5, group.led_by, None)
        async with Client(f"127.0.0.1:{stream.port}", timeout_s=4.0) as client:
            with pytest.raises(Unavailable, match="no leader"):
                await client.put("a", "1")
