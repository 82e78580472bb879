"""Proves planted faults: each expected checker reports the run with the fault, and the same run without it passes.

A run with a fault ends once all expected checkers have reported. The run without it, the control, ends at the same
simulated time; it continues to its end, and its history is judged, if that is how the fault was detected. Faults with
the same stage and seed share one control.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from math import inf

from tests.sim.checkers.registry import NAMES
from tests.sim.plants import PLANTS, Stage
from tests.sim.run import Outcome, Until, run_seed

SEEDS_MAX = 8
"""How many are tried: which seed shows a fault changes with the code."""
CONTROL_MORE_S = 1.0
"""The control runs for so much longer, in simulated time: without the fault the same may happen a little later."""

Place = tuple[Stage, int]
"""A stage and a seed: what a control runs."""


@dataclass(frozen=True, slots=True)
class Proof:
    """`seed`: of the run; 0 if no checker reported anything in any run. `seen_by`: the checkers that did, in order.

    `well_without`: the control passed. `control_s`: how long it has to run, in simulated time; None: to its end.
    `cpu_s`: of all runs that the proof took.
    """

    plant: str
    seed: int
    seen_by: tuple[str, ...]
    violation: str
    well_without: bool
    cpu_s: float
    control_s: float | None = None

    @property
    def place(self) -> Place:
        return PLANTS[self.plant].on, self.seed

    @property
    def right(self) -> bool:
        plant = PLANTS[self.plant]
        return self.well_without and set(plant.catches) <= set(self.seen_by) and plant.says in self.violation


def prove(name: str, first: int = 0, seeds: int = SEEDS_MAX) -> Proof:
    """By the first seed that proves it; if there is none, the first in which anything was reported.

    `first` 0: the seed that is kept with the plant.
    """
    first = first or PLANTS[name].on.seed
    found, cpu_s = Proof(name, 0, (), "", well_without=False, cpu_s=0.0), 0.0
    for seed in range(first, first + seeds):
        proof = with_fault(name, seed)
        cpu_s += proof.cpu_s
        if proof.right:
            well, control_cpu_s = without_fault(proof.place, proof.control_s)
            cpu_s += control_cpu_s
            proof = replace(proof, well_without=well)
        if proof.right:
            return replace(proof, cpu_s=cpu_s)
        if proof.violation and not found.seed:
            found = proof
    return replace(found, cpu_s=cpu_s)


def with_fault(name: str, seed: int) -> Proof:
    """What the run with the fault shows; its control is yet to be run."""
    plant = PLANTS[name]
    outcome = run_on(plant.on, seed, name, Until(goes_on=True, reported=frozenset(plant.catches)))
    control_s = None if outcome.judged else outcome.simulated_s + CONTROL_MORE_S
    return Proof(name, seed, outcome.seen_by, outcome.violation, True, outcome.cpu_s, control_s)


def without_fault(place: Place, for_s: float | None) -> tuple[bool, float]:
    """(the control passed, its seconds of CPU)."""
    outcome = run_on(*place, until=Until(s=inf if for_s is None else for_s))
    return not outcome.failed, outcome.cpu_s


def run_on(stage: Stage, seed: int, plant: str | None = None, until: Until | None = None) -> Outcome:
    return run_seed(seed, stage.scenario, stage.plan, stage.settings, plant=plant, until=until or Until())


def prove_all(pool: ProcessPoolExecutor) -> Iterator[Proof]:
    """Of each plant, in their order. One whose kept seed proves nothing is proved anew by the next ones."""
    proofs = list(pool.map(with_fault, PLANTS, [plant.on.seed for plant in PLANTS.values()]))
    lengths: dict[Place, float | None] = {}
    for proof in proofs:
        if proof.right:
            lengths[proof.place] = _longer(lengths.get(proof.place, 0.0), proof.control_s)
    controls = dict(zip(lengths, pool.map(without_fault, lengths, lengths.values()), strict=True))
    again = {
        proof.plant: pool.submit(prove, proof.plant)
        for proof in proofs
        if not (proof.right and controls[proof.place][0])
    }
    for proof in proofs:
        yield again[proof.plant].result() if proof.plant in again else proof


def _longer(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else max(one, other)


def shown(proof: Proof) -> str:
    plant = PLANTS[proof.plant]
    where = f"seed {proof.seed} of {plant.on}"
    if not proof.seed:
        return f"{proof.plant}: NOT SEEN in {SEEDS_MAX} seeds of {plant.on}"
    if proof.right:
        return f"{proof.plant}: seen by {', '.join(plant.catches)} with {where} ({proof.cpu_s:.1f} s of CPU)"
    if not proof.well_without and set(plant.catches) <= set(proof.seen_by):
        return f"{proof.plant}: {where} fails without it too"
    missing = [name for name in plant.catches if name not in proof.seen_by]
    if not missing:
        return f"{proof.plant}: {plant.says!r} IS NOT SAID with {where}, but {proof.violation}"
    return f"{proof.plant}: NOT SEEN BY {', '.join(missing)}, but by {', '.join(proof.seen_by) or proof.violation[:80]}"


def uncaught(proofs: Iterable[Proof]) -> list[str]:
    """The checkers that no planted fault proves."""
    caught = {name for proof in proofs if proof.right for name in PLANTS[proof.plant].catches}
    return [name for name in NAMES if name not in caught]


def matrix(proofs: Iterable[Proof]) -> Iterator[str]:
    """A line for each planted fault, a column for each checker: # detected it as required, + detected it as well."""
    proofs = list(proofs)
    width = max(map(len, PLANTS))
    for number, name in enumerate(NAMES):
        yield f"{'':{width}}  {'| ' * number}{name}"
    for proof in proofs:
        marks = " ".join(_mark(proof, name) for name in NAMES)
        yield f"{proof.plant:{width}}  {marks}"


def _mark(proof: Proof, name: str) -> str:
    wanted = name in PLANTS[proof.plant].catches
    if name in proof.seen_by:
        return "#" if wanted else "+"
    return "!" if wanted else "."
