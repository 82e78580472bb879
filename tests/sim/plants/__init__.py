"""Faults planted in production code, each to prove that the checkers that it is for detect it (issue 5).

Each removes or bends one rule. `scripts/sim --plant NAME` must fail, which it does only if the checkers that it is for
detect it, and the same run passes without it (`prove.py`). An undetected fault means that the simulator checks too
little.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.sim.plants import (
    administration,
    answers,
    backups,
    batches,
    copies,
    expiry,
    fences,
    group,
    leases,
    logs,
    reads,
    segments,
    silence,
    survivors,
    vaults,
    watches,
)
from tests.sim.plants.plant import PLANTS, Patch, Plant, Stage

__all__ = [
    "PLANTS",
    "Plant",
    "Stage",
    "administration",
    "answers",
    "backups",
    "batches",
    "copies",
    "expiry",
    "fences",
    "group",
    "leases",
    "logs",
    "planted",
    "reads",
    "segments",
    "silence",
    "survivors",
    "vaults",
    "watches",
]


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Nothing is planted for None."""
    with Patch.context() as patch:
        if name is not None:
            PLANTS[name].plant(patch)
        yield
