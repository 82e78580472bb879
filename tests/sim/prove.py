"""Whether a planted fault is seen, by which checker, after how many seeds."""

from __future__ import annotations

from dataclasses import dataclass

from tests.sim.plants import PLANTS
from tests.sim.run import run_seed

SEEDS_MAX = 8


@dataclass(frozen=True, slots=True)
class Proof:
    """`seed`: that failed; 0 for none. `right`: whether it was the right checker that said so."""

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
    """The first seed whose failure is told by a checker that the fault is for; if there is none, the first failure."""
    found = Proof(name, 0, "")
    for seed in range(first, first + seeds):
        outcome = run_seed(seed, PLANTS[name].scenario, plant=name)
        if outcome.failed:
            proof = Proof(name, seed, outcome.violation)
            if proof.right:
                return proof
            found = found if found.seed else proof
    return found


def shown(proof: Proof) -> str:
    plant = PLANTS[proof.plant]
    if not proof.seed:
        return f"{proof.plant}: NOT SEEN in {SEEDS_MAX} seeds of {plant.scenario}"
    by = proof.checker if proof.right else f"the wrong checker ({proof.checker[:60]})"
    return f"{proof.plant}: seen by {by} with seed {proof.seed} of {plant.scenario}"
