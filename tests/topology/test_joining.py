"""Registrars and nodes together, over a group of one in memory and simulated time (R9; scenarios.md, "Recovery")."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from palisade.base.recurring_line import RecurringLine
from palisade.metastore.command_codec import encode_command
from palisade.metastore.requests import FROM_KEY, FoundCluster, Range
from palisade.raftgroup.errors import OutcomeUnknown, Unavailable
from palisade.service.key_values import KeyValues
from palisade.topology.admission_rules import JoinRequest, Presence
from palisade.topology.join_state import JoinPhase
from palisade.topology.member import JoinCandidate, TopologyMember
from palisade.topology.records import NodeRole, NodeStanding
from palisade.topology.registrar import Registrar
from palisade.topology.view import logical_view, node_of, rules_of
from palisade.wire.topology_errors import JoinLater, JoinRejected, NodeRefused, Reason
from tests.support.fake_group import FakeGroup, fake_group
from tests.support.waiting import until

REQUEST = JoinRequest("c1", 1, "secret", "n7", NodeRole.FOLLOWER, "i1", 1, {"http": "h:1"})


class World:
    def __init__(self, token: str | None = "secret") -> None:
        self.group: FakeGroup = fake_group()
        self.group.apply([encode_command(FoundCluster("id-1"))])
        self.service = KeyValues(self.group, self.group.store, deadline_s=0.3)
        self.physical: dict[str, Presence] = {}
        self.registrar = Registrar(self.service, "c1", lambda: self.physical, token)
        self.gate = asyncio.Event()
        self.gate.set()
        self.recoveries: list[str] = []
        self.duplicate: str | None = None
        self.tasks: list[asyncio.Task[None]] = []

    def member(
        self, instance: str = "i1", *, cluster: str = "c1", token: str = "secret", cluster_id: str = ""
    ) -> TopologyMember:
        async def recover(state: object) -> int:
            await self.gate.wait()
            self.recoveries.append(instance)
            return self.group.store.revision

        return TopologyMember(
            lambda: self.registrar,
            JoinCandidate("n7", NodeRole.FOLLOWER, instance, cluster, token, {}),
            recover=recover,
            cluster_id=lambda: cluster_id,
            refusal=lambda: self.duplicate,
        )

    def standing(self, name: str = "n7") -> NodeStanding | None:
        record = node_of(self.group.store.system, name)
        return record.standing if record else None

    def run(self, coroutine: object) -> asyncio.Task[None]:
        self.tasks.append(asyncio.ensure_future(coroutine))  # type: ignore[arg-type]
        return self.tasks[-1]


@pytest.fixture
async def world() -> object:
    made = World()
    yield made
    for task in made.tasks:
        task.cancel()
    await asyncio.gather(*made.tasks, return_exceptions=True)


async def initialized(world: World) -> None:
    world.run(world.registrar.watch())
    await until(lambda: rules_of(world.group.store.system))


async def test_the_first_leader_initializes_the_cluster_once(world: World) -> None:
    await initialized(world)
    rules = rules_of(world.group.store.system)
    assert rules is not None
    assert (rules.cluster, rules.members) == ("c1", ("n1",))
    other = Registrar(world.service, "c1", dict, "another secret")
    await other._initialize()
    assert rules_of(world.group.store.system) == rules


async def test_node_is_active_only_after_recovery(world: World) -> None:
    await initialized(world)
    world.gate.clear()
    member = world.member()
    world.run(member.run())
    await until(lambda: "physical topology" in member.life.waiting)
    assert world.standing() is None
    world.physical["n7"] = Presence("i1", True)
    await until(lambda: member.life.phase is JoinPhase.RECOVERING)
    assert world.standing() is NodeStanding.VALIDATED
    world.gate.set()
    await until(lambda: member.life.phase is JoinPhase.ACTIVE)
    assert world.standing() is NodeStanding.ACTIVE
    assert [row["id"] for row in logical_view(world.group.store.system)] == ["n7"]


@pytest.mark.parametrize("wrong", [{"token": "guess"}, {"cluster": "c2"}, {"cluster_id": "id-9"}])
async def test_rejected_node_stops_with_the_reason(world: World, wrong: dict[str, str]) -> None:
    await initialized(world)
    world.physical["n7"] = Presence("i1", True)
    with pytest.raises(NodeRefused, match="n7 was rejected: "):
        await world.member(**wrong).run()
    assert world.standing() is None
    assert world.registrar.rejected == 1


async def test_node_with_another_protocol_version_stops_with_the_reason(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await initialized(world)
    world.physical["n7"] = Presence("i1", True)
    monkeypatch.setattr("palisade.topology.member.PROTOCOL_VERSION", 2)
    with pytest.raises(
        NodeRefused, match="uses version 2 of the join protocol, the cluster version 1: run a matching release"
    ):
        await world.member().run()
    assert (world.standing(), world.recoveries) == (None, [])


class LostAnswers:
    """The cluster executes the request, and the leader is gone before it responds: `lost` times, by name."""

    def __init__(self, registrar: Registrar, **lost: int) -> None:
        self._registrar, self.lost, self.asked = registrar, lost, list[str]()

    def __getattr__(self, name: str) -> Any:
        async def ask(*arguments: Any) -> Any:
            answer = await getattr(self._registrar, name)(*arguments)
            self.asked.append(name)
            if self.lost.get(name, 0):
                self.lost[name] -= 1
                raise OutcomeUnknown("the leader changed before it answered")
            return answer

        return ask


@pytest.mark.parametrize("step", ["state", "join", "recovered", "look"])
async def test_leader_change_during_a_join_makes_no_second_incarnation(world: World, step: str) -> None:
    """scenarios.md, "Recovery": leader changes during join. The decision holds under any later leader."""
    await initialized(world)
    world.physical["n7"] = Presence("i1", True)
    registrar = LostAnswers(world.registrar, **{step: 3})
    member = world.member()
    member._registrar = lambda: registrar
    world.run(member.run())
    await until(lambda: member.life.phase is JoinPhase.ACTIVE and registrar.asked.count(step) >= 4)
    record = node_of(world.group.store.system, "n7")
    assert record is not None
    assert (record.standing, record.incarnation, member.life.incarnation) == (NodeStanding.ACTIVE, 1, 1)
    assert world.recoveries == ["i1"]


async def test_node_with_a_name_in_use_stops_and_names_the_other(world: World) -> None:
    await initialized(world)
    world.physical["n7"] = Presence("i1", True)
    first = world.member()
    world.run(first.run())
    await until(lambda: first.life.phase is JoinPhase.ACTIVE)
    second = world.member(instance="i2")
    running = world.run(second.run())
    await until(lambda: "another process has the name" in second.life.waiting)
    world.duplicate = "the name n7 is taken"
    with pytest.raises(NodeRefused, match="the name n7 is taken"):
        await running
    record = node_of(world.group.store.system, "n7")
    assert record is not None
    assert record.instance == "i1"


async def test_dropped_node_is_not_active_until_it_has_joined_again(world: World) -> None:
    await initialized(world)
    world.physical["n7"] = Presence("i1", True)
    member = world.member()
    running = world.run(member.run())
    await until(lambda: member.life.phase is JoinPhase.ACTIVE)
    world.gate.clear()
    world.physical["n7"] = Presence("i1", False)
    await until(lambda: world.standing() is NodeStanding.GONE)
    world.physical["n7"] = Presence("i1", True)
    await until(lambda: member.life.phase is JoinPhase.RECOVERING)
    assert world.standing() is NodeStanding.VALIDATED
    world.gate.set()
    await until(lambda: world.standing() is NodeStanding.ACTIVE)
    record = node_of(world.group.store.system, "n7")
    assert record is not None
    assert (record.incarnation, world.recoveries) == (2, ["i1", "i1"])
    assert not running.done()


async def test_node_that_leaves_while_joining_is_not_active(world: World) -> None:
    await initialized(world)
    world.gate.clear()
    world.physical["n7"] = Presence("i1", True)
    member = world.member()
    world.run(member.run())
    await until(lambda: member.life.phase is JoinPhase.RECOVERING)
    await member.leave()
    assert world.standing() is NodeStanding.GONE


async def test_join_waits_for_a_leader(world: World) -> None:
    """The meta storage loses its majority during the join and comes back."""
    await initialized(world)
    world.physical["n7"] = Presence("i1", True)
    world.gate.clear()
    member = world.member()
    world.run(member.run())
    await until(lambda: member.life.phase is JoinPhase.RECOVERING)
    world.group.leading = False
    world.gate.set()
    await until(lambda: member.life.phase is JoinPhase.FINISHING and member.life.waiting)
    world.group.leading = True
    await until(lambda: member.life.phase is JoinPhase.ACTIVE)


async def test_concurrent_registrars_do_not_overwrite_each_other(world: World) -> None:
    """Two processes ask at two nodes for one name: each registrar sees another one of them."""
    await initialized(world)
    others = {each: {"n7": Presence(each, True)} for each in ("i1", "i2")}
    registrars = {each: Registrar(world.service, "c1", lambda e=each: others[e], None) for each in others}  # type: ignore[misc]
    requests = [registrars[each].join(replace(REQUEST, instance=each)) for each in others]
    records = await asyncio.gather(*requests)
    assert sorted(record.incarnation for record in records) == [1, 2]
    last = max(records, key=lambda record: record.incarnation)
    first = min(records, key=lambda record: record.incarnation)
    with pytest.raises(JoinRejected) as rejected:
        await world.registrar.recovered("n7", first.instance, first.incarnation, 1)
    assert rejected.value.reason is Reason.SUPERSEDED
    assert (await world.registrar.recovered("n7", last.instance, last.incarnation, 1)).standing is NodeStanding.ACTIVE


async def test_join_waits_until_the_cluster_is_initialized(world: World) -> None:
    with pytest.raises(JoinLater, match="not initialized"):
        await world.registrar.join(REQUEST)
    assert not (await world.registrar.state()).initialized


@pytest.mark.parametrize("standing", [NodeStanding.VALIDATED, NodeStanding.ACTIVE, NodeStanding.GONE])
async def test_member_without_a_majority_decides_nothing(world: World, standing: NodeStanding) -> None:
    """Its records may be old: neither a repeated answer nor a refusal comes out of them."""
    await initialized(world)
    world.physical["n7"] = Presence("i1", True)
    record = await world.registrar.join(REQUEST)
    if standing is not NodeStanding.VALIDATED:
        await world.registrar.recovered("n7", "i1", record.incarnation, 1)
    if standing is NodeStanding.GONE:
        await world.registrar.leave("n7", "i1")
    world.group.leading = False
    for ask in (
        world.registrar.join(REQUEST),
        world.registrar.join(replace(REQUEST, token="guess")),
        world.registrar.recovered("n7", "i1", record.incarnation, 1),
        world.registrar.recovered("n7", "i1", record.incarnation + 1, 1),
        world.registrar.leave("n7", "i1"),
    ):
        with pytest.raises(Unavailable):
            await ask


async def test_topology_records_are_invisible_in_ranges_and_revisions(world: World) -> None:
    before = world.group.store.revision
    await initialized(world)
    world.physical["n7"] = Presence("i1", True)
    await world.registrar.join(REQUEST)
    assert world.group.store.revision == before
    assert world.group.store.range(Range(b"\0", FROM_KEY)).count == 0


async def test_log_line_of_a_phase_has_its_reason_in_a_field(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """With --log-format json, "phase=seeking: the cluster ..." became the field phase="seeking:" (issue 16)."""
    member = world.member()
    before, member.life = member.life, replace(member.life, phase=JoinPhase.JOINING, waiting="no leader")
    with caplog.at_level("INFO"):
        member._log_change(before)
    assert caplog.messages == ["topology phase changed: node=n7 phase=joining reason=no leader"]


async def test_node_that_waits_for_long_warns_again_and_again(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 16: a wrong --join was one line of level INFO, then silence."""
    monkeypatch.setattr("palisade.topology.member.RecurringLine", partial(RecurringLine, 0.02))
    monkeypatch.setattr("palisade.topology.member.RETRY_S", 0.001)
    caplog.set_level("INFO")
    waits = asyncio.create_task(world.member().run())

    def warnings() -> list[str]:
        return [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]

    await until(lambda: len(warnings()) == 3)
    waits.cancel()
    reason = "topology waiting: node=n7 phase=seeking reason=the cluster is not initialized yet (for "
    assert all(each.startswith(reason) for each in warnings())
    informed = [each for each in caplog.records if each.levelname == "INFO" and "waiting" in each.getMessage()]
    assert len(informed) == 1
