"""Every world that steps lead to, breadth first, so that the way to a violation is as short as possible."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

W = TypeVar("W")
S = TypeVar("S")


class Violated(Exception):
    """Why, and the steps to it from the world whose steps were asked for."""

    def __init__(self, why: str, *steps: object) -> None:
        super().__init__(why)
        self.steps = steps


@dataclass(frozen=True)
class Explored(Generic[S]):
    """`trace`: the way to the violation. `steps`: by which each other world was reached first. `everything`: there are
    no other worlds, and none is further than `depth` steps away."""

    violation: str | None
    trace: tuple[Any, ...]
    steps: tuple[S, ...]
    depth: int
    everything: bool

    @property
    def worlds(self) -> int:
        return 1 + len(self.steps)


def explore(
    start: W, key_of: Callable[[W], Hashable], steps_of: Callable[[W], Iterable[tuple[S, W]]], worlds_max: int = 1 << 30
) -> Explored[S]:
    """`key_of`: equal for worlds that behave alike. `steps_of`: each step, and the world after it; may raise Violated.
    The search ends after a world whose steps make `worlds_max` known."""
    first = key_of(start)
    came: dict[Hashable, tuple[Hashable, S]] = {}
    frontier, depth = [(start, first)], 0

    def explored(violation: Violated | None, place: Hashable = first, *, everything: bool = False) -> Explored[S]:
        trace: list[Any] = list(violation.steps) if violation else []
        while place != first:
            place, step = came[place]
            trace.insert(0, step)
        why = str(violation) if violation else None
        return Explored(why, tuple(trace), tuple(step for _, step in came.values()), depth, everything)

    while frontier:
        depth += 1
        following: list[tuple[W, Hashable]] = []
        for world, place in frontier:
            try:
                for step, after in steps_of(world):
                    there = key_of(after)
                    if there not in came and there != first:
                        came[there] = (place, step)
                        following.append((after, there))
            except Violated as violation:
                return explored(violation, place)
            if len(came) + 1 >= worlds_max:
                return explored(None)
        frontier = following
    return explored(None, everything=True)
