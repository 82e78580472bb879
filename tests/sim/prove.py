"""Whether a planted fault is seen, by which checker, after how many seeds."""

from __future__ import annotations

from dataclasses import dataclass

from tests.sim.plants import PLANTS
from tests.sim.run import run_seed

SEEDS_MAX = 8


@dataclass(frozen=True, slots=True)
class Proof:
    """`seed`: the first that failed; 0 for none. `right`: whether it was the right checker that said so."""

    plant: str
    seed: int
    violation: str

    @property
    def checker(self) -> str:
        return self.violation.partition(":")[0]

    @property
    def right(self) -> bool:
        return self.seed > 0 and self.checker in PLANTS[self.plant].seen_by


def prove(name: str, first: int = 1, seeds: int = SEEDS_MAX) -> Proof:
    for seed in range(first, first + seeds):
        outcome = run_seed(seed, PLANTS[name].scenario, plant=name)
        if outcome.failed:
            return Proof(name, seed, outcome.violation)
    return Proof(name, 0, "")


def shown(proof: Proof) -> str:
    plant = PLANTS[proof.plant]
    if not proof.seed:
        return f"{proof.plant}: NOT SEEN in {SEEDS_MAX} seeds of {plant.scenario}"
    by = proof.checker if proof.right else f"the wrong checker ({proof.checker[:60]})"
    return f"{proof.plant}: seen by {by} with seed {proof.seed} of {plant.scenario}"
