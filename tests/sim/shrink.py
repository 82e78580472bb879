"""The smallest part of a plan that still fails: the shortest prefix, then without each unnecessary fault.

The caller decides what counts as failing: a part that fails by another checker is another failure, and the remaining
faults would be those of that one.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.sim.faults import Plan

Fails = Callable[[Plan], bool]
RUNS_MAX = 60


def shrink(plan: Plan, fails: Fails, runs_max: int = RUNS_MAX) -> Plan:
    """`plan` fails. A shorter prefix need not fail where a longer one does, so this is a search, not a proof."""
    left = runs_max

    def tried(candidate: Plan) -> bool:
        nonlocal left
        left -= 1
        return fails(candidate)

    low, high = 0, len(plan)
    while low < high and left:
        middle = (low + high) // 2
        low, high = (low, middle) if tried(plan[:middle]) else (middle + 1, high)
    best = plan[:high]
    for fault in reversed(best):
        without = tuple(each for each in best if each is not fault)
        if left and tried(without):
            best = without
    return best
