"""The simulator itself: the same seed is the same run, for any hash seed; seeds pass; plans shrink."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.faults import SCENARIOS, Fault, Kind, Plan, plan_of
from tests.sim.plants.backups import RESTORED
from tests.sim.run import Outcome, run_seed
from tests.sim.shrink import shrink

ROOT = Path(__file__).resolve().parents[2]
ONE_RUN = (
    "from tests.sim.plants.backups import RESTORED; from tests.sim.run import run_seed; "
    "o = run_seed({seed}, '{scenario}', {plan}); print(o.digest, o.operations, o.violation)"
)


def run_apart(seed: int, hash_seed: str, plan: str = "None", scenario: str = "many") -> str:
    environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", ONE_RUN.format(seed=seed, scenario=scenario, plan=plan)]
    return subprocess.run(command, env=environment, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def test_same_seed_is_the_same_run_under_any_hash_seed() -> None:
    """Issue 5: same seed, same trace, byte for byte, under different PYTHONHASHSEED."""
    first, second = run_apart(7, "1"), run_apart(7, "4242")
    assert first == second
    assert first.split()[0] == run_seed(7, "many").digest
    assert first != run_apart(8, "1")


def test_run_over_restores_is_the_same_under_any_hash_seed() -> None:
    outcome = run_seed(5, "many", RESTORED.plan)
    assert outcome.coverage["restore: done"]
    assert run_apart(5, "4242", "RESTORED.plan").split()[0] == outcome.digest


@pytest.mark.parametrize(("seed", "scenario"), [(53, "storm"), (123, "network"), (8, "restores"), (33, "drift")])
def test_run_is_deterministic_for_any_seed(seed: int, scenario: str) -> None:
    """HTTP, small windows and queues (53), five members (123), a lost majority (8), wrong clocks."""
    outcome = run_seed(seed, scenario)
    assert run_apart(seed, "4242", scenario=scenario).split()[0] == outcome.digest


def test_repeated_seed_is_the_same_run() -> None:
    """Seed 3 of the disks: a stream server closed its connections in the order of their addresses in memory."""
    assert len({run_seed(3, "disks").digest for _ in range(3)}) == 1


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_some_seeds_of_each_scenario(scenario: str) -> None:
    outcome = run_seed(11, scenario)
    assert not outcome.violation, outcome.violation


def test_node_still_stopping_when_faults_end_is_restarted() -> None:
    """Seed 516 of the scenario many: it stayed down, and the others were blamed."""
    plan = (Fault(SCENARIOS["calm"].faults_s - 0.001, Kind.STOP, "n3", for_s=1.0),)
    outcome = run_seed(1, "calm", plan)
    assert not outcome.violation, outcome.violation


def test_plan_follows_from_its_seed_and_can_be_cut() -> None:
    names = ("n1", "n2", "n3", "f1")
    plan = plan_of(5, SCENARIOS["many"], 40.0, names[:3], names)
    assert plan == plan_of(5, SCENARIOS["many"], 40.0, names[:3], names)
    assert plan != plan_of(6, SCENARIOS["many"], 40.0, names[:3], names)
    assert list(plan) == sorted(plan, key=lambda fault: fault.at_s)


def test_failure_is_the_same_if_the_same_checker_sees_it_first() -> None:
    """Otherwise a plan was shrunk to the faults of a different failure."""

    def outcome(violation: str, *seen_by: str) -> Outcome:
        return Outcome(1, "calm", (), violation, seen_by)

    failure = outcome("durable: ...", "durable", "answers")
    assert outcome("durable: something else", "durable").fails_as(failure)
    assert not outcome("answers: ...", "answers", "durable").fails_as(failure)
    assert not outcome("Traceback ...").fails_as(failure)
    assert not outcome("").fails_as(outcome(""))
    assert outcome("Traceback ...").fails_as(outcome("Traceback ..."))


def test_shrinking_finds_the_two_necessary_faults() -> None:
    plan: Plan = tuple(Fault(float(number), Kind.CRASH, f"n{number}") for number in range(12))

    def fails(candidate: Plan) -> bool:
        return {"n3", "n7"} <= {fault.target for fault in candidate}

    assert [fault.target for fault in shrink(plan, fails)] == ["n3", "n7"]
