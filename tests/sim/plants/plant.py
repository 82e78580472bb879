"""A planted fault of the product, with the checkers that it is for and the run in which it shows soonest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.sim.faults import Fault, Kind, Plan
from tests.sim.world import SMALL_WINDOW_BYTES, Settings

Patch = pytest.MonkeyPatch


@dataclass(frozen=True, slots=True)
class Stage:
    """`seed`: the first that is tried. `plan`, `settings`: replace those of the seed."""

    scenario: str = "calm"
    seed: int = 3
    plan: Plan | None = None
    settings: Settings | None = None

    def __str__(self) -> str:
        faults = "" if self.plan is None else f" with {len(self.plan)} fault(s) of its own"
        return f"{self.scenario}{faults}"


CALM = Stage(settings=Settings())


def with_faults(*faults: Fault, seed: int = 3) -> Stage:
    """The same with these."""
    return Stage("calm", seed, faults, Settings())


MANY = Stage("many", 3)
SLOW_READERS = Stage(settings=Settings(window_bytes=SMALL_WINDOW_BYTES))
HOLDERS_PAUSED = Stage(
    "calm",
    3,
    tuple(Fault(1.0 + 6.0 * number, Kind.PAUSE, "f1", for_s=5.0) for number in range(3)),
    Settings(window_bytes=SMALL_WINDOW_BYTES),
)
LEADERS_CUT_OFF = with_faults(*(Fault(2.0 + 3.5 * number, Kind.ISOLATE, "leader", "n1", 2.5) for number in range(5)))
MEMBER_CUT_OFF = with_faults(Fault(2.0, Kind.ISOLATE, "n2", "n1", 15.0))
STORMS = with_faults(
    *(
        fault
        for at in (2.0, 8.0, 14.0)
        for fault in (Fault(at, Kind.STORM, "n1", "n2", 4.0, 1.0), Fault(at + 3.9, Kind.CRASH, "leader", "n1", 0.5))
    )
)
"""Repeated and reordered messages, then the leader dies."""


@dataclass(frozen=True, slots=True)
class Plant:
    """`catches`: the checkers each of which must detect it. Others may detect it as well. `says`: a part of the first
    violation, if one checker covers several properties."""

    name: str
    plant: Callable[[Patch], None]
    catches: tuple[str, ...]
    on: Stage
    says: str = ""


PLANTS: dict[str, Plant] = {}


def caught_by(
    *checkers: str, on: Stage = CALM, says: str = ""
) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def kept(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
        name = plant.__name__.replace("_", "-")
        if name in PLANTS:
            raise ValueError(f"there are two planted faults {name}")
        PLANTS[name] = Plant(name, plant, checkers, on, says)
        return plant

    return kept
