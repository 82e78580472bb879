"""Faults that are planted in production code, each to prove that the checkers that it is for see it (issue 5).

Each takes away or bends one rule. `scripts/sim --plant NAME` has to be red, which it is only where the checkers see it
that it is for, and the same run is well without it (`prove.py`). A fault that nobody sees means that the simulator
looks at too little.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.sim.plants import answers, backups, fences, group, leases, logs, reads, silence, survivors, vaults, watches
from tests.sim.plants.plant import PLANTS, Patch, Plant, Stage

__all__ = [
    "PLANTS",
    "Plant",
    "Stage",
    "answers",
    "backups",
    "fences",
    "group",
    "leases",
    "logs",
    "planted",
    "reads",
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
