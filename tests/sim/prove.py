"""Whether a planted fault is detected: the run with it fails for each checker that it is for, the same without it
passes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

from tests.sim.checkers.registry import NAMES
from tests.sim.plants import PLANTS, Stage
from tests.sim.run import Outcome, run_seed

SEEDS_MAX = 8
"""How many seeds are tried: which seed shows a fault changes with the code."""

Place = tuple[Stage, int]
"""A stage and a seed: whether a run without any planted fault passes."""


@dataclass(frozen=True, slots=True)
class Proof:
    """`seed`: of the run; 0 if nothing was detected at all. `told`: the checkers that detected it, the first one first.

    `well_without`: the same run without the fault passes. `cpu_s`: of all runs that it took.
    """

    plant: str
    seed: int
    told: tuple[str, ...]
    violation: str
    well_without: bool
    cpu_s: float

    @property
    def right(self) -> bool:
        plant = PLANTS[self.plant]
        return self.well_without and set(plant.catches) <= set(self.told) and plant.says in self.violation


def prove(name: str, first: int = 0, seeds: int = SEEDS_MAX, well: frozenset[Place] = frozenset()) -> Proof:
    """By the first seed that proves it; if there is none, the first with any violation.

    `first` 0: the seed in the plant. `well`: known results of runs without a fault.
    """
    stage = PLANTS[name].on
    first = first or stage.seed
    found, cpu_s = Proof(name, 0, (), "", well_without=False, cpu_s=0.0), 0.0
    for seed in range(first, first + seeds):
        outcome = run_on(stage, seed, name)
        cpu_s += outcome.cpu_s
        proof = Proof(name, seed, outcome.told, outcome.violation, well_without=True, cpu_s=0.0)
        if proof.right and (stage, seed) not in well:
            control = run_on(stage, seed)
            cpu_s += control.cpu_s
            proof = replace(proof, well_without=not control.failed)
        if proof.right:
            return replace(proof, cpu_s=cpu_s)
        if outcome.failed and not found.seed:
            found = proof
    return replace(found, cpu_s=cpu_s)


def run_on(stage: Stage, seed: int, plant: str | None = None) -> Outcome:
    return run_seed(seed, stage.scenario, stage.plan, stage.settings, plant=plant, goes_on=plant is not None)


def prove_all(pool: ProcessPoolExecutor) -> Iterator[Proof]:
    """Of each plant, as they come. Runs without a fault are made once for all of them."""
    places = dict.fromkeys((plant.on, plant.on.seed) for plant in PLANTS.values())
    well = frozenset(place for place, good in zip(places, pool.map(_is_well, places), strict=True) if good)
    for proving in [pool.submit(prove, name, well=well) for name in PLANTS]:
        yield proving.result()


def _is_well(place: Place) -> bool:
    return not run_on(*place).failed


def shown(proof: Proof) -> str:
    plant = PLANTS[proof.plant]
    where = f"seed {proof.seed} of {plant.on}"
    if not proof.seed:
        return f"{proof.plant}: NOT SEEN in {SEEDS_MAX} seeds of {plant.on}"
    if proof.right:
        return f"{proof.plant}: seen by {', '.join(plant.catches)} with {where} ({proof.cpu_s:.1f} s of CPU)"
    if not proof.well_without and set(plant.catches) <= set(proof.told):
        return f"{proof.plant}: {where} fails without it too"
    missing = [name for name in plant.catches if name not in proof.told]
    if not missing:
        return f"{proof.plant}: {plant.says!r} IS NOT SAID with {where}, but {proof.violation}"
    return f"{proof.plant}: NOT SEEN BY {', '.join(missing)}, but by {', '.join(proof.told) or proof.violation[:80]}"


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
    if name in proof.told:
        return "#" if wanted else "+"
    return "!" if wanted else "."
