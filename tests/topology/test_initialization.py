"""Cluster init: idempotent, cancellable, never two plans (R9; scenarios.md, "Recovery": init twice with the same and
with other members, init cancelled half-way)."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palisade.topology.initialization import (
    CommitInit,
    InitCancelled,
    InitDone,
    InitPlan,
    InitRefused,
    InitState,
    Participant,
    Prepare,
    WaitInit,
    holding,
    next_step,
)

MEMBERS = tuple(f"n{number}=127.0.0.1:750{number}:740{number}:760{number}" for number in (1, 2, 3))
PLAN = InitPlan("c1", MEMBERS)
OTHER = InitPlan("c1", MEMBERS[:2])
OWN = dict(zip(PLAN.names, MEMBERS, strict=True))
PREPARED = Participant(InitState.PREPARED, PLAN)
COMMITTED = Participant(InitState.COMMITTED, PLAN)


class World:
    """Three nodes; the coordinator can be stopped between any two messages."""

    def __init__(self) -> None:
        self.nodes: dict[str, Participant] = dict.fromkeys(PLAN.names, Participant())
        self.down: set[str] = set()

    def states(self) -> dict[str, Participant | None]:
        return {name: None if name in self.down else state for name, state in self.nodes.items()}

    def coordinate(self, plan: InitPlan = PLAN, messages: int = 1000) -> object:
        """At most so many messages; the last step."""
        while True:
            step = next_step(plan, self.states())
            if isinstance(step, WaitInit | InitDone):
                return step
            for name in step.names:
                if messages == 0:
                    return step
                messages -= 1
                node = self.nodes[name]
                self.nodes[name] = node.prepare(plan, OWN[name]) if isinstance(step, Prepare) else node.commit(plan.id)

    def cancel(self, plan: InitPlan = PLAN) -> None:
        for name in plan.names:
            if name not in self.down:
                self.nodes[name] = self.nodes[name].cancel(plan.id)


def test_initialization_prepares_all_then_commits_all() -> None:
    world = World()
    assert next_step(PLAN, world.states()) == Prepare(("n1", "n2", "n3"))
    assert isinstance(world.coordinate(), InitDone)
    assert set(world.nodes.values()) == {COMMITTED}


def test_same_plan_again_changes_nothing() -> None:
    world = World()
    world.coordinate()
    assert isinstance(world.coordinate(), InitDone)
    assert COMMITTED.prepare(PLAN, OWN["n1"]) == COMMITTED
    assert COMMITTED.commit(PLAN.id) == COMMITTED


def test_participant_rejects_another_plan_once_prepared_or_committed() -> None:
    with pytest.raises(InitRefused, match="palisade init --cancel"):
        PREPARED.prepare(OTHER, OWN["n1"])
    with pytest.raises(InitRefused, match="is already being founded with n1, n2, n3"):
        COMMITTED.prepare(OTHER, OWN["n1"])


def test_commit_waits_until_all_have_prepared() -> None:
    world = World()
    world.down = {"n3"}
    assert world.coordinate() == WaitInit(("n3",))
    assert {world.nodes[name] for name in ("n1", "n2")} == {PREPARED}
    with pytest.raises(InitRefused, match="not prepared here"):
        world.nodes["n3"].commit(PLAN.id)


def test_prepared_plan_can_be_cancelled_and_replaced() -> None:
    world = World()
    world.down = {"n3"}
    world.coordinate()
    world.cancel()
    assert set(world.nodes.values()) == {Participant()}
    assert isinstance(world.coordinate(OTHER), InitDone)


def test_committed_plan_cannot_be_cancelled() -> None:
    with pytest.raises(InitRefused, match="cannot cancel: the cluster is already being founded"):
        COMMITTED.cancel(PLAN.id)


def test_plan_with_other_addresses_of_this_node_is_rejected() -> None:
    with pytest.raises(InitRefused, match="its name or addresses differ"):
        Participant().prepare(PLAN, "n1=127.0.0.1:9999:7401:7601")


@given(st.lists(st.integers(0, 6), max_size=5), st.integers())
def test_initialization_completes_wherever_coordinators_stop(stops: list[int], seed: int) -> None:
    """And a cancel in between either undoes all, or is too late, or leaves what the same plan completes."""
    world, chance = World(), random.Random(seed)
    for messages in stops:
        world.down = {name for name in PLAN.names if chance.random() < 0.3}
        world.coordinate(messages=messages)
        if chance.random() < 0.3:
            try:
                world.cancel()
            except InitRefused:
                assert COMMITTED in world.nodes.values()
    world.down = set()
    assert isinstance(world.coordinate(), InitDone)
    assert set(world.nodes.values()) == {COMMITTED}


def test_commit_continues_without_a_silent_participant() -> None:
    states = {"n1": COMMITTED, "n2": PREPARED, "n3": None}
    assert next_step(PLAN, states) == CommitInit(("n2",))


def test_cancel_ends_a_coordinator_that_still_runs() -> None:
    """It was waiting for a participant when another coordinator cancelled the plan at all that had prepared it."""
    states: dict[str, Participant | None] = {"n1": PREPARED, "n2": PREPARED, "n3": None}
    assert next_step(PLAN, states) == WaitInit(("n3",))
    held = holding(PLAN, states)
    assert held == {"n1", "n2"}
    assert next_step(PLAN, {"n1": PREPARED, "n2": Participant(), "n3": None}, held) == InitCancelled(("n2",))
    assert next_step(PLAN, dict.fromkeys(PLAN.names, Participant()), held) == InitCancelled(("n1", "n2"))
    after = Participant(InitState.PREPARED, OTHER)
    assert next_step(PLAN, {"n1": after, "n2": after, "n3": Participant()}, held) == InitCancelled(("n1", "n2"))
