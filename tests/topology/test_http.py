"""Joining over HTTP: the node's side (`remote_registrar.py`) against the cluster's side (`v1_topology.py`) (R9)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from aiohttp import ClientSession, web

import palisade
from palisade.api.http.server import HttpServer
from palisade.api.services import NodeServices
from palisade.base.address import Address
from palisade.metastore.command_codec import encode_command
from palisade.metastore.requests import FoundCluster
from palisade.node.config import NodeConfig
from palisade.raftgroup.errors import Unavailable
from palisade.service.key_values import KeyValues
from palisade.topology.admission_rules import JoinRequest, Presence
from palisade.topology.join_state import JoinPhase, JoinState
from palisade.topology.member import JoinCandidate, TopologyMember
from palisade.topology.physical import PhysicalTopology
from palisade.topology.records import NodeRole, NodeStanding
from palisade.topology.registrar import Registrar
from palisade.topology.remote_registrar import RemoteRegistrar
from palisade.topology.table_rows import node_rows
from palisade.topology.topology import Topology
from palisade.topology.view import logical_view
from palisade.wire.topology_errors import JoinLater, JoinRejected, Reason
from tests.support.fake_group import fake_group

REQUEST = JoinRequest("demo", 1, "right-token", "n7", NodeRole.FOLLOWER, "i1", 1, {"http": "127.0.0.1:7407"})
SCHEMAS: dict[str, Any] = json.loads((Path(palisade.__file__).parent / "api/openapi.json").read_text())


def fits(answer: Any, schema: str) -> None:
    jsonschema.validate(answer, {"$ref": f"#/components/schemas/{schema}", "components": SCHEMAS["components"]})


class World:
    def __init__(self) -> None:
        self.removed = False
        self.group = fake_group()
        self.group.apply([encode_command(FoundCluster("id-1"))])
        self.service = KeyValues(self.group, self.group.store, deadline_s=0.3)
        self.physical: dict[str, Presence] = {"n7": Presence("i1", True)}
        self.registrar = Registrar(self.service, "demo", lambda: self.physical, "right-token")
        store = self.group.store
        addresses = {name: Address("127.0.0.1", port) for name, port in (("http", 1), ("peer", 2), ("stream", 3))}
        config = NodeConfig("n1", Path("unused"), "demo", **addresses)
        physical = PhysicalTopology(config.own_node(), NodeRole.VOTER)

        async def recover(_: object) -> int:
            return store.revision

        member = TopologyMember(
            lambda: self.registrar,
            JoinCandidate("n1", NodeRole.VOTER, physical.instance, "demo", None, {}),
            recover=recover,
            cluster_id=lambda: "",
            refusal=lambda: None,
        )
        self.topology = Topology(
            physical,
            self.registrar,
            member,
            lambda: (logical_view(store.system), store.system.version),
            removed=lambda: self.removed,
        )
        self.server = HttpServer(NodeServices(self.service, topology=self.topology), "demo", "n1", progress_s=0.1)
        self.remote = RemoteRegistrar(lambda: ["127.0.0.1:9", f"127.0.0.1:{self.server.port}"])


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    await made.registrar._initialize()
    await made.server.start("127.0.0.1", 0)
    yield made
    await made.remote.close()
    await made.server.close()


async def test_join_over_http_skips_a_node_that_is_down(world: World) -> None:
    state = await world.remote.state()
    assert (state.cluster, state.cluster_id, state.initialized, state.token_needed) == ("demo", "id-1", True, True)
    record = await world.remote.join(REQUEST)
    assert (record.standing, record.incarnation, record.role) == (NodeStanding.VALIDATED, 1, NodeRole.FOLLOWER)
    assert await world.remote.look("n7") == record
    active = await world.remote.recovered("n7", "i1", 1, 5)
    assert active == replace(record, standing=NodeStanding.ACTIVE, recovered=5)
    assert (await world.remote.leave("n7", "i1")).standing is NodeStanding.GONE
    assert await world.remote.look("n8") is None


async def test_remote_door_raises_rejected_with_reason_and_later(world: World) -> None:
    with pytest.raises(JoinRejected, match="a wrong join token") as rejected:
        await world.remote.join(replace(REQUEST, token="wrong-token"))
    assert rejected.value.reason is Reason.NO_PERMISSION
    world.physical.clear()
    with pytest.raises(JoinLater, match="physical topology"):
        await world.remote.join(REQUEST)


async def test_topology_requests_fail_without_a_leader(world: World) -> None:
    world.group.leading = False
    with pytest.raises(Unavailable):
        await world.remote.state()


async def test_removed_node_is_in_no_topology_that_it_shows(world: World) -> None:
    """For a second after its removal it showed itself as an active voter (issue 16, item 1)."""
    world.physical["n1"] = Presence("i1", True)
    for name in ("n1", "n7"):
        await world.remote.join(replace(REQUEST, name=name))
    before = world.topology.view()
    assert [row["id"] for row in before["logical"]] == ["n1", "n7"]
    world.topology.member.life = JoinState(JoinPhase.ACTIVE)
    assert world.topology.is_active
    world.removed = True
    view = world.topology.view()
    assert [row["id"] for row in view["logical"]] == ["n7"]
    assert view["self"]["phase"] == "removed"
    assert "an empty data directory" in view["self"]["waiting_for"]
    assert not world.topology.is_active
    fits(view, "Topology")


async def test_answers_have_the_documented_shapes(world: World) -> None:
    await world.remote.join(REQUEST)
    async with ClientSession(f"http://127.0.0.1:{world.server.port}") as http:
        for path, schema in (
            ("/v1/topology", "Topology"),
            ("/v1/cluster", "Cluster"),
            ("/v1/topology/nodes/n7", "JoinedNode"),
            ("/v1/topology/nodes/n8", "JoinedNode"),
            ("/v1/status", "Status"),
        ):
            async with http.get(path) as answer:
                assert answer.status == 200
                fits(await answer.json(), schema)
        async with http.get("/metrics") as answer:
            text = await answer.text()
        assert 'palisade_logical_nodes{standing="validated"} 1.0' in text
        body = {"cluster": "other", "protocol": 1, "name": "n7", "role": "follower", "instance": "i", "attempt": 1}
        async with http.post("/v1/topology/join", json=body) as answer:
            assert answer.status == 403
            problem = await answer.json()
        fits(problem, "Problem")
        assert (problem["code"], problem["reason"]) == ("join-rejected", "wrong-cluster")


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"cluster": "demo"},
        {"name": "", "instance": "i"},
        {"name": "n", "instance": "i" * 300, "incarnation": 1, "revision": 1},
        {"name": "n", "instance": "i", "incarnation": "one", "revision": 1},
        {"name": "n", "instance": "i", "incarnation": 1, "revision": 1, "more": 1},
    ],
)
async def test_a_body_of_another_shape_is_a_bad_request(world: World, body: Any) -> None:
    async with ClientSession(f"http://127.0.0.1:{world.server.port}") as http:
        for path in ("/v1/topology/recovered", "/v1/topology/join"):
            async with http.post(path, json=body) as answer:
                assert answer.status == 400, await answer.text()


async def test_table_has_one_row_per_node(world: World) -> None:
    await world.remote.join(REQUEST)
    rows = node_rows(world.topology.view())
    assert [row[:5] for row in rows] == [["n1", "alive", "-", "voter", "-"], ["n7", "-", "validated", "follower", "1"]]


NONSENSE: list[Any] = [
    None, 7, "text", [], {}, [1], {"node": 7}, {"node": []}, {"node": {}}, {"node": {"id": "n7"}}, {"cluster": "demo"},
    {"node": {"id": 7, "role": "king", "standing": "active", "instance": "i", "attempt": 1, "incarnation": 1}},
    {"nodes": {}, "version": 1}, {"nodes": [7], "version": 1}, {"nodes": [], "version": "1"}, {"nodes": []},
    {"nodes": [{"id": "n7", "role": "voter", "standing": "active", "instance": "i", "attempt": 1, "incarnation": 1,
                "addresses": [1], "recovered_revision": 1, "reason": ""}], "version": 1},
]  # fmt: skip


@pytest.mark.parametrize("status", [200, 403, 500])
@pytest.mark.parametrize("nonsense", [*NONSENSE, {"code": "join-rejected", "reason": []}], ids=str)
async def test_remote_door_rejects_responses_of_another_shape(nonsense: Any, status: int) -> None:
    """For example, another process has the address now. The node retries; it neither fails nor accepts the response."""

    async def answered(_: web.Request) -> web.Response:
        return web.json_response(nonsense, status=status)

    app = web.Application()
    app.add_routes([web.route("*", "/{any:.*}", answered)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    remote = RemoteRegistrar(lambda: [site.name.rpartition("/")[2]])
    try:
        refusal = isinstance(nonsense, dict) and "code" in nonsense and status != 200
        for ask in (
            remote.state(),
            remote.join(REQUEST),
            remote.recovered("n7", "i1", 1, 5),
            remote.leave("n7", "i1"),
            remote.nodes(),
        ):
            with pytest.raises(JoinRejected if refusal else Unavailable):
                await ask
    finally:
        await remote.close()
        await runner.cleanup()


@pytest.mark.parametrize("knows_leader", [False, True])
async def test_init_at_a_member_without_a_leader_names_the_cluster_that_exists(
    world: World, *, knows_leader: bool
) -> None:
    """It waited for a leader, and then for the deadline of the command, which reported that no node answers."""
    world.group.led_by("n2" if knows_leader else None)
    world.group.majority = False
    at = f"http://127.0.0.1:{world.server.port}/v1/cluster/init"
    async with ClientSession() as session:
        for body, status, text in (
            ({"members": ["n1"]}, 503, "this node belongs to cluster demo, initialized with n1, but"),
            ({"members": ["n1"], "cancel": True}, 409, "cluster demo is initialized with n1: other nodes join it"),
            ({"members": ["n1", "n2"]}, 409, "cluster demo is initialized with n1: other nodes join it"),
        ):
            async with session.post(at, json=body) as response:
                found = await response.json()
            assert (response.status, text in found["detail"]) == (status, True)
            assert ("knows no leader" in found["detail"]) == (status == 503 and not knows_leader)
    world.group.majority = True
