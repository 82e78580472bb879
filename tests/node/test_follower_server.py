"""The HTTP API of a follower, and the view of a running recovery (issue 3; R4, R12)."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from aiohttp import ClientSession

from palisade.api.http.openapi_document import DocumentKind, document_of
from palisade.api.http.scenario_host import ScenarioHost
from palisade.api.http.server import HttpServer
from palisade.api.services import NodeServices
from palisade.cli.scenarios.all import SCENARIOS
from palisade.node.config import NodeConfig
from palisade.node.config_sources import load_node_config
from palisade.node.follower_server import FollowerServer, FollowerServices
from palisade.node.standalone_server import standalone_server
from palisade.raftgroup.errors import Unavailable
from palisade.recovery.progress_log import ProgressLog
from palisade.recovery.report import RecoveryOutcome, RecoveryPhase, RecoveryProgress, RecoveryReport
from palisade.recovery.vault_component import VaultComponent
from palisade.topology.logical_copy import LogicalCopy
from palisade.topology.member import JoinCandidate, TopologyMember
from palisade.topology.physical import PhysicalTopology
from palisade.topology.records import NodeRecord, NodeRole, NodeStanding
from palisade.topology.topology import Topology
from palisade.vault.opening import open_vault
from tests.support.hand_clock import Clock
from tests.support.keeper_world import World

METHODS = {"GET", "PUT", "POST", "PATCH", "DELETE"}
ACTIVE = NodeRecord("n1", NodeRole.VOTER, NodeStanding.ACTIVE, "i1", 1, 1, {"http": "127.0.0.1:7401"}, 7, "")


class Members:
    """The members' view of the logical topology, while they respond."""

    def __init__(self) -> None:
        self.answers = True
        self.asked = 0

    async def nodes(self) -> tuple[list[NodeRecord], int]:
        self.asked += 1
        await asyncio.sleep(0)
        if not self.answers:
            raise Unavailable("no member is up")
        return [ACTIVE], 12


class Served:
    """The server of a follower, over the vault of a `World`. `http` is a session with it."""

    def __init__(self, world: World, keeper: VaultComponent, http: ClientSession, server: FollowerServer) -> None:
        self.world, self.keeper, self.http, self.server = world, keeper, http, server
        self.members = Members()

    async def get(self, path: str) -> Any:
        async with self.http.get(path) as answer:
            return await answer.json() if answer.content_type != "text/plain" else await answer.text()

    async def put(self, body: Any) -> tuple[int, Any]:
        async with self.http.put("/v1/recovery/catch-up-difference", json=body) as answer:
            return answer.status, await answer.json()


def config_of(folder: Path) -> NodeConfig:
    given = {"id": "f1", "cluster": "c1", "data-dir": str(folder), "http": "127.0.0.1:7411", "swim": "127.0.0.1:7711"}
    return load_node_config({**given, "follow": "true", "seeds": "127.0.0.1:7701"}, environ={})


def topology_of(config: NodeConfig, members: Members, clock: Clock) -> Topology:
    physical = PhysicalTopology(config.own_node(), NodeRole.FOLLOWER)

    async def recover(_: Any) -> int:
        return 0

    member = TopologyMember(
        lambda: members,
        JoinCandidate("f1", NodeRole.FOLLOWER, "i", "c1", None, {}),
        recover=recover,
        cluster_id=str,
        refusal=lambda: None,
    )
    logical = LogicalCopy(members.nodes, clock.now)
    return Topology(physical, None, member, logical.rows, logical.refresh, logical.age_s)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def served(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    monkeypatch.setattr("palisade.recovery.replay.COMMIT_S", 0.0)
    world = World(tmp_path / "vault")
    keeper = world.keeper()
    await keeper.start()
    config, members = config_of(tmp_path), Members()
    topology = topology_of(config, members, clock)
    members_at, cluster_id = lambda: ["127.0.0.1:7401"], lambda: keeper.cluster_id
    services = FollowerServices(topology, keeper, ScenarioHost(SCENARIOS), members_at, cluster_id=cluster_id)
    server = FollowerServer(config, services)
    await server.start("127.0.0.1", 0)
    async with ClientSession(f"http://127.0.0.1:{server.port}") as http:
        served = Served(world, keeper, http, server)
        served.members = members
        yield served
    await server.close()
    await keeper.stop()


def fits(shape: Any, name: str) -> None:
    document = json.loads(document_of(DocumentKind.MEMBER))
    schema = document["components"]["schemas"][name]
    jsonschema.validate(shape, {**schema, "components": document["components"]})


async def standing(served: Served, revisions: int, at: int) -> asyncio.Task[int]:
    """A running recovery of so many revisions, paused at one of them."""
    world = served.world
    world.put(*(f"k{number}" for number in range(revisions)))
    world.stands_at = at
    recovering = asyncio.create_task(served.keeper.catch_up())
    await world.stands.wait()
    return recovering


async def test_follower_does_not_recover_before_it_has_joined(served: Served) -> None:
    found = await served.get("/v1/recovery")
    fits(found, "Recoveries")
    assert found == {
        "recoveries": [], "begun": 0, "under_way": None, "catch_up_difference": 0, "acceptable_difference": 0,
    }  # fmt: skip


async def test_running_recovery_shows_phase_done_total_rate_and_time(served: Served) -> None:
    recovering = await standing(served, 40, at=30)
    found = await served.get("/v1/recovery")
    fits(found, "Recoveries")
    progress, (report,) = found["under_way"], found["recoveries"]
    assert (progress["phase"], progress["done"], progress["total"], progress["unit"]) == ("replay", 29, 41, "revisions")
    assert progress["per_s"] > 0
    assert progress["remaining_s"] > 0
    assert (report["outcome"], report["case"], report["lv"], report["lm"]) == ("running", "b", 29, 41)
    assert report["seconds"] >= report["phases"]["replay"] > 0
    status = await served.get("/v1/status")
    fits(status, "FollowerStatus")
    assert status["recovery"]["phase"] == "replay"
    served.world.goes_on.set()
    assert await recovering == 41
    found = await served.get("/v1/recovery")
    fits(found, "Recoveries")
    assert found["under_way"] is None
    assert [report["outcome"] for report in found["recoveries"]] == ["done"]
    status = await served.get("/v1/status")
    assert (status["recovery"], status["cluster_id"]) == (None, served.keeper.cluster_id)
    assert status["cluster_id"], "it was missing, and `status --at` printed: id not chosen yet"


async def test_metrics_show_the_running_and_the_last_recovery(served: Served) -> None:
    recovering = await standing(served, 40, at=30)
    running = await served.get("/metrics")
    for line in (
        "palisade_recovery_running 1.0",
        'palisade_recovery_phase{phase="replay"} 1.0',
        'palisade_recovery_phase{phase="ask"} 0.0',
        "palisade_recovery_done 29.0",
        "palisade_recovery_expected 41.0",
        "palisade_recoveries_total 1.0",
        'palisade_recovery_case{case="b"} 1.0',
        "palisade_vault_revision 29.0",
        "palisade_recovery_acceptable_difference 0.0",
    ):
        assert line in running.splitlines(), line
    served.world.goes_on.set()
    await recovering
    ended = await served.get("/metrics")
    for line in (
        "palisade_recovery_running 0.0",
        "palisade_recovery_replayed 41.0",
        'palisade_recovery_keys{what="fetched"} 0.0',
        'palisade_recovery_resources{what="kept"} 0.0',
        'palisade_recovery_phase{phase="replay"} 0.0',
        "palisade_recovery_snapshots 0.0",
        'palisade_logical_nodes{standing="active"} 1.0',
        'palisade_physical_nodes{state="alive"} 1.0',
        "palisade_ready 0.0",
    ):
        assert line in ended.splitlines(), line
    assert 'palisade_recovery_phase_seconds{phase="replay"}' in ended
    assert "palisade_recovery_bytes " in ended


async def test_catch_up_difference_applies_to_a_running_recovery(served: Served) -> None:
    """R4: the threshold is changed at run time."""
    recovering = await standing(served, 40, at=10)
    status, said = await served.put({"revisions": 25})
    fits(said, "CatchUpDifference")
    assert (status, said) == (200, {"catch_up_difference": 25, "before": 0})
    found = await served.get("/v1/recovery")
    assert (found["catch_up_difference"], found["acceptable_difference"]) == (25, 25)
    served.world.goes_on.set()
    assert await recovering == 16, "LM is 41: at 16 it is 25 behind, and that is enough now"
    report = (await served.get("/v1/recovery"))["recoveries"][-1]
    assert (report["outcome"], report["difference"], report["revisions_replayed"]) == ("done", 25, 16)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"revisions": -1}, "0 to 1000000000000"),
        ({"revisions": 10**12 + 1}, "0 to 1000000000000"),
        ({"revisions": 10**30}, "64 bits"),
        ({"revisions": "many"}, "not a whole number"),
        ({"revisions": 1.5}, "not a whole number"),
        ({"revisions": True}, "not a whole number"),
        ({"revisions": [1]}, "not a whole number"),
        ({"revisions": None}, "revisions is missing"),
        ({}, "revisions is missing"),
        ({"revision": 1}, "there is no field"),
        ([1], "is not an object"),
        (None, ""),
    ],
)
async def test_invalid_catch_up_difference_is_refused(served: Served, body: Any, said: str) -> None:
    await served.put({"revisions": 7})
    status, problem = await served.put(body)
    assert (status, problem["code"]) == (400, "bad-request"), problem
    assert said in problem["detail"]
    assert (await served.get("/v1/recovery"))["catch_up_difference"] == 7


@pytest.mark.parametrize("revisions", [0, 1, 10**12])
async def test_catch_up_difference_in_range_is_accepted(served: Served, revisions: int) -> None:
    assert await served.put({"revisions": revisions}) == (200, {"catch_up_difference": revisions, "before": 0})


async def test_logical_topology_of_a_follower_is_fetched_once_a_second(served: Served, clock: Clock) -> None:
    """The view of a follower was empty (regression)."""
    found = await served.get("/v1/topology")
    fits(found, "Topology")
    assert [(row["id"], row["standing"]) for row in found["logical"]] == [("n1", "active")]
    assert (found["version"], found["logical_age_s"]) == (12, 0.0)
    await asyncio.gather(*(served.get("/v1/topology") for _ in range(20)), served.get("/metrics"))
    assert served.members.asked == 1
    served.members.answers = False
    clock.time += 60
    found = await served.get("/v1/topology")
    assert ([row["id"] for row in found["logical"]], found["logical_age_s"]) == (["n1"], 60.0)
    served.members.answers = True
    clock.time += 2
    assert (await served.get("/v1/topology"))["logical_age_s"] == 0.0


async def test_unknown_topology_has_no_age(served: Served) -> None:
    served.members.answers = False
    found = await served.get("/v1/topology")
    fits(found, "Topology")
    assert (found["logical"], found["version"], found["logical_age_s"]) == ([], 0, None)
    assert "palisade_logical_nodes" not in await served.get("/metrics")


async def test_refusal_of_a_follower_names_a_member(served: Served) -> None:
    for method, path in (
        ("GET", "/v1/kv/a"), ("PUT", "/v1/kv/a%2Fb"), ("GET", "/v1/watch?prefix=/"), ("POST", "/v1/feed/state"),
        ("GET", "/v1/cluster"), ("POST", "/v1/status"), ("DELETE", "/v1/recovery/catch-up-difference"),
    ):  # fmt: skip
        async with served.http.request(method, path) as answer:
            problem = await answer.json()
            assert (answer.status, problem["code"], problem["retry"]) == (421, "not-a-member", False), path
            assert "127.0.0.1:7401" in problem["detail"]
    async with served.http.post("/v3/kv/range", json={}) as answer:
        assert (answer.status, (await answer.json())["code"]) == (412, 9)
    async with served.http.get("/nothing") as answer:
        assert answer.status == 404


async def test_scenarios_are_listed_and_refused_as_by_a_member(served: Served) -> None:
    assert "join" in [one["name"] for one in (await served.get("/v1/scenarios"))["scenarios"]]
    assert (await served.get("/v1/scenarios/join"))["state"] == "never"
    async with served.http.post("/v1/scenarios/join") as answer:
        assert (answer.status, (await answer.json())["code"]) == (403, "scenarios-off")


def routes_of(app: Any) -> set[tuple[str, str]]:
    return {
        (route.method, route.resource.canonical)
        for route in app.router.routes()
        if route.resource is not None and route.method in METHODS
    }


def documented(document: dict[str, Any]) -> set[tuple[str, str]]:
    return {(method.upper(), path) for path, item in document["paths"].items() for method in item}


async def test_each_kind_of_node_documents_what_it_serves(served: Served, server: HttpServer, tmp_path: Path) -> None:
    vault = open_vault(tmp_path / "alone")
    alone = standalone_server(config_of(tmp_path), vault, RecoveryReport("f1", RecoveryOutcome.DONE))
    vault.close()
    for kind, app in (
        (DocumentKind.MEMBER, server.app),
        (DocumentKind.FOLLOWER, served.server.app),
        (DocumentKind.STANDALONE, alone.app),
    ):
        assert routes_of(app) == documented(json.loads(document_of(kind))), kind
    assert documented(await served.get("/openapi.json")) == documented(json.loads(document_of(DocumentKind.FOLLOWER)))


async def test_member_without_a_vault_refuses_a_catch_up_difference(http: ClientSession) -> None:
    async with http.get("/v1/recovery") as answer:
        found = await answer.json()
        fits(found, "Recoveries")
        assert (found["recoveries"], found["catch_up_difference"]) == ([], None)
    async with http.put("/v1/recovery/catch-up-difference", json={"revisions": 1}) as answer:
        assert (answer.status, (await answer.json())["code"]) == (400, "invalid-request")


async def test_member_shows_its_recovery_as_a_follower_does(served: Served) -> None:
    """All kinds of node use `recovery/status.py`."""
    services = NodeServices(served.world.service, vault=served.keeper)
    server = HttpServer(services, "demo", "n1")
    await server.start("127.0.0.1", 0)
    recovering = await standing(served, 40, at=30)
    try:
        async with ClientSession(f"http://127.0.0.1:{server.port}") as http:
            async with http.get("/v1/status") as answer:
                status = await answer.json()
                fits(status, "Status")
                assert (status["recovery"]["phase"], status["recovery"]["done"]) == ("replay", 29)
            async with http.get("/metrics") as answer:
                lines = (await answer.text()).splitlines()
                assert {"palisade_recovery_running 1.0", "palisade_recovery_done 29.0"} <= set(lines)
            async with http.put("/v1/recovery/catch-up-difference", json={"revisions": 11}) as answer:
                assert await answer.json() == {"catch_up_difference": 11, "before": 0}
            served.world.goes_on.set()
            assert await recovering == 30
            async with http.get("/v1/status") as answer:
                assert (await answer.json())["recovery"] is None
    finally:
        recovering.cancel()
        await server.close()


def test_log_reports_only_long_recoveries(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    progress_log = ProgressLog(clock.now)
    caplog.set_level(logging.INFO, "palisade.recovery.progress_log")
    progress_log.began(True)
    for second in range(1, 13):
        clock.time += 1
        progress_log.went_on(RecoveryProgress(RecoveryPhase.REPLAY, 1000 * second, 20_000, "revisions", float(second)))
    progress_log.began(True)
    clock.time += 4
    progress_log.went_on(RecoveryProgress(RecoveryPhase.ASK, seconds=4.0))
    assert [record.getMessage() for record in caplog.records] == [
        "recovering: replay: 5,000 of 20,000 revisions, 1,000/s, about 15 s left",
        "recovering: replay: 10,000 of 20,000 revisions, 1,000/s, about 10 s left",
    ]
