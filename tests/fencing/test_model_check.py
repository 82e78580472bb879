"""The production machines in every interleaving that chance finds (issue 4, "Shown by" 3); in each one of a small scope
in `test_exhaustive.py`.

After `model/lease_model.py`, which explores a sketch of the protocol. Longer: `python -m tests.support.fencing_walks`.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from palisade.fencing.holder_state import Holder
from palisade.fencing.registry import Registry
from palisade.fencing.release import Releases
from palisade.fencing.timing import FenceTiming
from tests.support.fencing_faults import BASES, FAULTS
from tests.support.fencing_parts import Scope
from tests.support.fencing_walks import search, walk
from tests.support.fencing_world import World

WALKS = 700
SEEDS = {"other_chain": 12, "no_promise": 13}
"""Where chance finds it soon; any other seed finds it, too."""
LENGTHS = {"other_chain": 120}


@pytest.mark.parametrize("name", BASES)
def test_random_walks_never_show_an_old_value_after_a_new_one(name: str) -> None:
    """scenarios.md, "two readers on two nodes around one write", and all of F11 mixed."""
    found, reads = search(BASES[name], WALKS)
    assert found is None, found
    assert reads > 2 * WALKS


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_detected(name: str) -> None:
    """style.md 10: a check is proved by planting the bug it is for."""
    found, _ = search(FAULTS[name], 8000, seed=SEEDS.get(name, 1), steps=LENGTHS.get(name, 200))
    assert found is not None


@pytest.mark.parametrize("name", FAULTS)
def test_worlds_of_the_faults_hold_without_the_fault(name: str) -> None:
    """The violation is caused by the fault, not by the world in which it is planted."""
    found, _ = search(healed(FAULTS[name]), 150, seed=SEEDS.get(name, 1))
    assert found is None, found


def healed(scope: Scope) -> Scope:
    drifting = scope.timing.drift > 0
    deaf = scope.timing.margin_s > 1e3
    return replace(
        scope,
        holder=Holder,
        releases=Releases,
        registry=Registry,
        asks_quorum=not deaf,
        rates=BASES["drifting"].rates if drifting else (1.0,),
        leader_rates=BASES["drifting"].leader_rates if drifting else (1.0,),
        fences_at_start=True,
        gated=True,
        checks=True,
        marks_first=True,
        checks_vault=True,
    )


@pytest.mark.parametrize("seed", range(20))
def test_liveness_returns_after_any_disorder(seed: int) -> None:
    """Safety alone could be had by serving nothing, ever."""
    scope = replace(BASES["plain"], timing=FenceTiming(fence_s=2.0, drift=0.01, margin_s=0.1))
    world, _, stale = walk(scope, Random(seed))
    assert stale is None
    recover(world)
    assert world.is_calm()


def recover(world: World) -> None:
    """All processes run and are connected to the latest leader, and some time passes."""
    for number in world.options("start"):
        world.start(number)
    for number, process in enumerate(world.processes):
        if process.holder is not None and process.holder.state.value == "stopped":
            world.kill(number)
            world.start(number)
    # The newest process of each name is the one that stays.
    for number, process in enumerate(world.processes):
        if any(other.node == process.node for other in world.processes[number + 1 :]):
            world.kill(number)
    world.messages.clear()
    world.held.clear()
    for _ in range(12):
        world.now += 0.5
        for leader in world.leaders:
            leader.sessions.clear()
        world.calm(len(world.leaders) - 1)
