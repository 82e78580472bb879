"""The client follows the leader, and leaves a node that knows none: over one of each, nothing is lost, nothing is sent
twice that must not be, and watches continue where they were (issue 2; M4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack

import pytest

from palisade.api.services import NodeServices
from palisade.api.stream.server import StreamServer
from palisade.client import Client
from palisade.client import endpoints as route_module
from palisade.client import session as session_module
from palisade.client.watch_handle import WatchHandle
from palisade.metastore.results import RevisionEvents
from palisade.raftgroup.errors import MemberRemoved
from palisade.raftgroup.membership import Member, MemberRole, Membership
from palisade.raftgroup.proposals import Applied
from palisade.service.key_values import KeyValues
from tests.support.fake_group import FakeGroup, fake_group
from tests.support.proxy import Proxy
from tests.support.waiting import until


class Another(FakeGroup):
    """Applies in another one's log."""

    def __init__(self, first: FakeGroup, member: str) -> None:
        super().__init__(first.store, first.clock, member)
        self._first = first

    def apply(self, commands: list[bytes]) -> list[Applied]:
        return self._first.apply(commands)


class TwoNodes:
    """n1 and n2 with one store between them, each with its own view of the leader. `endpoints` of their streams."""

    def __init__(self) -> None:
        first = fake_group()
        self.groups: dict[str, FakeGroup] = {"n1": first, "n2": Another(first, "n2")}
        self.servers = {
            name: StreamServer(NodeServices(KeyValues(group, group.store)), "demo")
            for name, group in self.groups.items()
        }

    async def start(self) -> None:
        for server in self.servers.values():
            await server.start("127.0.0.1", 0)
        self.announce(dict(zip(self.groups, self.endpoints, strict=True)))
        self.lead("n1")

    def announce(self, streams: Mapping[str, str]) -> None:
        members = tuple(Member(name, MemberRole.VOTER, "fake", {"stream": each}) for name, each in streams.items())
        for group in self.groups.values():
            group.belongs_to(Membership(members))

    def lead(self, leader: str | None) -> None:
        for group in self.groups.values():
            group.led_by(leader)

    def clients_of(self, name: str) -> int:
        return len(self.servers[name].connections)

    @property
    def endpoints(self) -> list[str]:
        return [f"127.0.0.1:{server.port}" for server in self.servers.values()]


@pytest.fixture
async def nodes() -> AsyncIterator[TwoNodes]:
    async with AsyncExitStack() as stack:
        nodes = TwoNodes()
        await nodes.start()
        for server in nodes.servers.values():
            stack.push_async_callback(server.close)
        yield nodes


async def is_at(nodes: TwoNodes, name: str) -> None:
    other = "n2" if name == "n1" else "n1"
    await until(lambda: nodes.clients_of(name) == 1 and nodes.clients_of(other) == 0)


async def test_client_moves_to_the_new_leader_after_a_transfer(nodes: TwoNodes) -> None:
    """Until then every request of it would be forwarded."""
    async with Client(nodes.endpoints) as client:
        await client.put("a", "1")
        nodes.lead("n2")
        await is_at(nodes, "n2")
        before = nodes.groups["n1"].submitted
        await client.put("a", "2")
        assert nodes.groups["n1"].submitted == before
        nodes.lead("n1")
        await is_at(nodes, "n1")


async def test_client_that_does_not_follow_the_leader_stays(nodes: TwoNodes) -> None:
    async with Client(nodes.endpoints, follow_leader=False) as client:
        await client.put("a", "1")
        nodes.lead("n2")
        await until(lambda: nodes.servers["n1"]._leader == "n2")
        await client.put("a", "2")
        await client.put("a", "3")
        assert (nodes.clients_of("n1"), nodes.clients_of("n2")) == (1, 0)


async def test_writes_in_flight_are_executed_once_at_any_node(nodes: TwoNodes) -> None:
    store = nodes.groups["n1"].store
    async with Client(nodes.endpoints, timeout_s=20) as client:
        puts = asyncio.ensure_future(client.put_many(((f"k{n}", b"v") for n in range(20_000)), outstanding=200))
        for step in range(1, 6):
            await until(lambda step=step: store.revision > step * 1500)  # type: ignore[misc]
            nodes.lead("n2" if step % 2 else "n1")
        assert await puts == 20_000
        await is_at(nodes, "n2")
    assert (store.revision, store.key_count) == (20_001, 20_000)


async def test_watch_continues_at_the_new_leader_without_gap_or_repetition(nodes: TwoNodes) -> None:
    async with (
        Client(nodes.endpoints) as client,
        Client(nodes.endpoints, follow_leader=False) as writer,
        client.watch("a") as watch,
    ):
        seen: list[int] = []
        for turn in range(6):
            for _ in range(50):
                await writer.put("a", "x")
            nodes.lead("n2" if turn % 2 == 0 else "n1")
            async with asyncio.timeout(5):
                seen += [(await anext(watch)).revision for _ in range(40)]
            await until(lambda turn=turn: nodes.clients_of("n2" if turn % 2 == 0 else "n1") == 1 + turn % 2)  # type: ignore[misc]
        async with asyncio.timeout(5):
            seen += [(await anext(watch)).revision for _ in range(60)]
    assert seen == list(range(2, 302))


async def test_watch_leaves_a_node_that_knows_no_leader(nodes: TwoNodes) -> None:
    """Otherwise it would be silent, as a watch of a store without changes is."""
    async with Client(nodes.endpoints, follow_leader=False) as client, client.watch("a", progress_s=0.1) as watch:
        await client.put("a", "1")
        assert (await anext(watch)).revision == 2
        nodes.groups["n1"].led_by(None)
        nodes.groups["n2"].led_by("n2")
        await is_at(nodes, "n2")
        assert watch.trouble is None
        await client.put("a", "2")
        async with asyncio.timeout(5):
            batches = [batch async for batch in _until_events(watch)]
    assert [batch.revision for batch in batches if batch.events] == [3]
    assert all(batch.revision <= 3 for batch in batches)


async def _until_events(watch: WatchHandle) -> AsyncIterator[RevisionEvents]:
    async for batch in watch:
        yield batch
        if batch.events:
            return


async def test_watch_reports_a_missing_leader_and_continues_with_a_new_one(nodes: TwoNodes) -> None:
    async with Client(nodes.endpoints) as client, client.watch("a") as watch:
        await client.put("a", "1")
        assert watch.trouble is None
        nodes.lead(None)
        await until(lambda: watch.trouble is not None)
        assert "n1 knows no leader" in str(watch.trouble)
        nodes.lead("n1")
        await until(lambda: watch.trouble is None)
        assert (await anext(watch)).revision == 2


async def test_watch_reports_a_frozen_node_by_its_own_address(nodes: TwoNodes) -> None:
    """Issue 16: it said nothing for 4.6 s. The client was given n1 and has moved to the leader n2."""
    async with Proxy(nodes.servers["n2"].port) as n2:
        nodes.announce({"n1": nodes.endpoints[0], "n2": n2.endpoint})
        async with Client(nodes.endpoints[:1]) as client, client.watch("a") as watch:
            nodes.lead("n2")
            await is_at(nodes, "n2")
            await client.put("a", "1")
            assert (await anext(watch)).revision == 2
            n2.muted = True
            await until(lambda: watch.trouble is not None)
            assert f"n2 at {n2.endpoint} has sent nothing for" in str(watch.trouble)
            n2.muted = False
            await until(lambda: watch.trouble is None)


async def test_change_that_is_not_repeatable_keeps_the_client_at_its_node(
    nodes: TwoNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client looks again once it is done."""
    monkeypatch.setattr(session_module, "CALM_S", 0.05)
    monkeypatch.setattr(session_module, "MOVE_S", 0.05)
    async with Client(nodes.endpoints, exactly_once=False, timeout_s=5) as client:
        await client.put("a", "1")
        nodes.groups["n1"].held = True
        put = asyncio.ensure_future(client.put("a", "2"))
        await until(lambda: nodes.groups["n1"].submitted == 2)
        nodes.lead("n2")
        await until(lambda: nodes.clients_of("n2") == 1)
        await until(lambda: nodes.clients_of("n2") == 0)
        assert not put.done()
        assert nodes.groups["n2"].submitted == 0
        nodes.groups["n1"].release()
        assert (await put).revision == 3
        await is_at(nodes, "n2")
        assert (await client.put("a", "3")).revision == 4


async def test_unreachable_leader_is_tried_again(nodes: TwoNodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_module, "AVOID_S", 0.2)
    monkeypatch.setattr(session_module, "MOVE_S", 0.05)
    endpoints, port = nodes.endpoints, nodes.servers["n2"].port
    await nodes.servers["n2"].close()
    async with Client(endpoints) as client:
        await client.put("a", "1")
        nodes.lead("n2")
        await until(lambda: client._session._route._avoid)
        await nodes.servers["n2"].start("127.0.0.1", port)
        await is_at(nodes, "n2")


async def test_announcement_of_the_new_node_counts_while_the_client_moves(
    nodes: TwoNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its welcome names a leader that is replaced before the last request at the old node has ended."""
    monkeypatch.setattr(session_module, "CALM_S", 5.0)
    async with Client(nodes.endpoints) as client:
        await client.put("a", "1")
        nodes.groups["n1"].held = True
        put = asyncio.ensure_future(client.put("a", "2"))
        await until(lambda: nodes.groups["n1"].submitted == 2)
        nodes.lead("n2")
        await until(lambda: nodes.clients_of("n2") == 1)
        nodes.lead("n1")
        await until(lambda: nodes.servers["n2"]._leader == "n1")
        nodes.groups["n1"].release()
        assert (await put).revision == 3
        await is_at(nodes, "n1")


async def test_watch_leaves_a_removed_node(nodes: TwoNodes) -> None:
    """A removed node stays connected for a second and refuses watches (seed 84 of the simulator)."""
    async with Client(nodes.endpoints) as client:
        await client.put("a", "1")
        nodes.groups["n1"].failed = MemberRemoved("n1 was removed from cluster demo: use another node")
        async with client.watch("a", start_revision=2) as watch:
            nodes.lead("n2")
            assert [event.kv.value for event in (await anext(watch)).events] == [b"1"]
            await until(lambda: nodes.clients_of("n2") == 1)
