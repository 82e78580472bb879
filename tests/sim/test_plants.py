"""Every checker has a planted fault that it must detect (issue 5); `scripts/sim --plants` shows that it does."""

from __future__ import annotations

import inspect
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.sim import checkers, prove
from tests.sim.__main__ import one_plant, parsed
from tests.sim.checkers.liveness import Liveness
from tests.sim.checkers.of_history import CHECKS
from tests.sim.checkers.registry import BEYOND_THE_BOUND, CHECKERS, NAMES
from tests.sim.faults import SCENARIOS
from tests.sim.plants import PLANTS, Stage, planted
from tests.sim.prove import Proof, matrix, uncaught
from tests.sim.run import Outcome, Until
from tests.support import raft_rules

HELPERS = {"__init__", "registry", "of_history", "growing"}
"""Files beside checkers that are none."""


def test_every_checker_has_a_planted_fault_that_it_must_see() -> None:
    caught = {name for plant in PLANTS.values() for name in plant.catches}
    assert set(NAMES) - caught == set()


def test_planted_faults_name_checkers_and_scenarios_that_exist() -> None:
    assert len(set(NAMES)) == len(NAMES)
    for plant in PLANTS.values():
        assert plant.catches
        assert set(plant.catches) <= set(NAMES), plant.name
        assert plant.on.scenario in SCENARIOS, plant.name


@pytest.mark.parametrize("name", PLANTS)
def test_patched_names_of_planted_faults_exist(name: str) -> None:
    """The product may have been changed since."""
    with planted(name):
        pass


def test_every_file_of_checkers_is_in_the_registry() -> None:
    """Of rules that look at nodes, and of those that look at histories."""
    files = {path.stem for package in (checkers, raft_rules) for path in Path(package.__path__[0]).glob("*.py")}
    known = {Path(inspect.getfile(kind)).stem for kind in (*CHECKERS, *BEYOND_THE_BOUND, Liveness)}
    known |= {Path(inspect.getfile(check)).stem for check in CHECKS.values()}
    assert files - HELPERS == known - HELPERS


def test_planted_fault_is_seen_and_is_what_fails_the_run() -> None:
    proof = prove.prove("messages-before-they-are-on-disk")
    assert proof.right, proof
    assert proof.violation.startswith("words on disk: seed ")
    assert proof.well_without
    assert proof.control_s is not None, "the run went on although the expected checker had reported"


def test_control_of_fault_that_a_judged_history_shows_is_judged_as_well() -> None:
    proof = prove.with_fault("watches-with-gaps", PLANTS["watches-with-gaps"].on.seed)
    assert (proof.right, proof.control_s) == (True, None), proof


def test_faults_of_one_stage_share_one_control_that_covers_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends after the latest detection, or runs to its end if one fault was detected by judging the history."""
    controls: list[tuple[prove.Place, float]] = []

    def run_on(stage: Stage, seed: int, plant: str | None = None, until: Until | None = None) -> Outcome:
        assert until is not None
        if plant is None:
            controls.append(((stage, seed), until.s))
            return Outcome(seed, stage.scenario, (), simulated_s=until.s)
        assert until.goes_on
        assert until.reported == set(PLANTS[plant].catches)
        found = PLANTS[plant].catches, float(list(PLANTS).index(plant))
        return Outcome(
            seed, stage.scenario, (), PLANTS[plant].says or "seen", found[0], simulated_s=found[1],
            judged=plant == "watches-with-gaps",
        )  # fmt: skip

    monkeypatch.setattr(prove, "run_on", run_on)
    pool: Any = ThreadPoolExecutor(1)
    with pool:
        proofs = list(prove.prove_all(pool))
    assert [proof.plant for proof in proofs if proof.right] == list(PLANTS)
    latest: dict[prove.Place, float] = {}
    for number, plant in enumerate(PLANTS.values()):
        latest[plant.on, plant.on.seed] = number + prove.CONTROL_MORE_S
    judged = PLANTS["watches-with-gaps"].on
    assert dict(controls) == latest | {(judged, judged.seed): math.inf}
    assert len(controls) == len(latest)


def test_fault_whose_control_fails_is_proved_by_another_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prove, "PLANTS", {PLANT: PLANTS[PLANT]})
    first = PLANTS[PLANT].on.seed

    def run_on(stage: Stage, seed: int, plant: str | None = None, until: Until | None = None) -> Outcome:
        wrong = "stays up: it did not" if plant is None and seed == first else ""
        seen = PLANTS[PLANT].catches if plant is not None else ()
        return Outcome(seed, stage.scenario, (), ", ".join(seen) or wrong, seen)

    monkeypatch.setattr(prove, "run_on", run_on)
    pool: Any = ThreadPoolExecutor(1)
    with pool:
        (proof,) = prove.prove_all(pool)
    assert (proof.right, proof.seed) == (True, first + 1)


PLANT = "progress-ahead-of-events"


def runs(
    monkeypatch: pytest.MonkeyPatch, seen_by: dict[int, tuple[str, ...]], control: str = ""
) -> list[tuple[int, bool]]:
    """Of (seed, with a planted fault), on demand; `seen_by`: by the seeds with one."""
    asked: list[tuple[int, bool]] = []

    def run_seed(
        seed: int, scenario: str, plan: object, settings: object, *, plant: str | None, until: Until
    ) -> Outcome:
        asked.append((seed, plant is not None))
        seen = seen_by.get(seed, ()) if plant is not None else ()
        violation = ", ".join(seen) if plant is not None else control
        return Outcome(seed, scenario, (), violation, seen, cpu_s=1.0)

    monkeypatch.setattr(prove, "run_seed", run_seed)
    return asked


def test_other_seeds_are_tried_if_the_stored_one_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = runs(monkeypatch, {4: ("liveness",), 5: ("liveness", "watch contract")})
    proof = prove.prove(PLANT)
    assert (proof.seed, proof.right, proof.cpu_s) == (5, True, 4.0)
    assert asked == [(3, True), (4, True), (5, True), (5, False)]


def test_run_that_fails_without_the_fault_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    runs(monkeypatch, {3: ("watch contract",)}, control="stays up: it did not")
    proof = prove.prove(PLANT, seeds=1)
    assert not proof.right
    assert prove.shown(proof) == f"{PLANT}: seed 3 of {PLANTS[PLANT].on} fails without it too"


def test_failure_of_another_checker_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    runs(monkeypatch, {3: ("liveness",)})
    proof = prove.prove(PLANT)
    assert not proof.right
    assert prove.shown(proof) == f"{PLANT}: NOT SEEN BY watch contract, but by liveness"


@pytest.mark.parametrize(("seen_by", "status"), [(("watch contract",), 1), (("liveness",), 0), ((), 0)])
def test_planted_fault_fails_only_its_own_proof(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seen_by: tuple[str, ...], status: int
) -> None:
    asked = runs(monkeypatch, dict.fromkeys(range(3, 3 + prove.SEEDS_MAX), seen_by))
    assert one_plant(parsed(["--plant", PLANT])) == status
    assert asked
    assert ("NOT SEEN" in capsys.readouterr().err) == (status == 0)


def test_other_violation_of_the_same_checker_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    runs(monkeypatch, dict.fromkeys(range(3, 3 + prove.SEEDS_MAX), ("liveness",)))
    name = "watches-that-send-nothing"
    proof = prove.prove(name)
    assert not proof.right
    assert prove.shown(proof) == f"{name}: 'watch at n1' IS NOT SAID with seed 3 of {PLANTS[name].on}, but liveness"


def test_unseen_planted_fault_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    runs(monkeypatch, {})
    assert prove.shown(prove.prove(PLANT)) == f"{PLANT}: NOT SEEN in {prove.SEEDS_MAX} seeds of {PLANTS[PLANT].on}"


def test_matrix_shows_faults_by_checker_and_unproved_checkers() -> None:
    right = Proof(PLANT, 3, ("watch contract", "durable"), "", well_without=True, cpu_s=1.0)
    wrong = Proof("syncs-that-do-nothing", 3, ("durable",), "", well_without=True, cpu_s=1.0)
    rows = dict(line.split(maxsplit=1) for line in list(matrix((right, wrong)))[len(NAMES) :])
    marks = dict(zip(NAMES, rows[PLANT].split(), strict=True))
    assert (marks["watch contract"], marks["durable"], marks["liveness"]) == ("#", "+", ".")
    assert dict(zip(NAMES, rows["syncs-that-do-nothing"].split(), strict=True))["words on disk"] == "!"
    assert uncaught((right, wrong)) == [name for name in NAMES if name != "watch contract"]
