"""For checkers of values that only grow: the greatest value observed at each place."""

from __future__ import annotations

from collections.abc import Hashable

from tests.sim.world import Checker, World


class Growing(Checker):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.most: dict[Hashable, int] = {}

    def grows(self, what: str, place: Hashable, value: int) -> None:
        before = self.most.get(place)
        if before is None or value > before:
            self.most[place] = value
        elif value < before:
            self.fail(f"{what} went back from {before} to {value}")
