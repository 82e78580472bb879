"""The plan of a smart eviction: stored before it runs, so that it continues after a crash (R5). Pure.

A resource whose eviction or fetching has begun may be incomplete and look complete. Thus an unfinished plan is
finished, or the next plan evicts its open resources; it is never dropped.

The number of finished steps is stored beside the plan, so that a step costs the same in a long plan.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import msgpack


class EvictionAction(enum.Enum):
    EVICT = "evict"
    FETCH = "fetch"


@dataclass(frozen=True, slots=True)
class Step:
    """`version` is empty for an eviction."""

    action: EvictionAction
    name: str
    version: str = ""


@dataclass(frozen=True, slots=True)
class EvictionPlan:
    """For the state of `revision`."""

    revision: int
    kept: int
    steps: tuple[Step, ...]

    def open_after(self, done: int) -> frozenset[str]:
        """The resources that may be incomplete once `done` steps are known to be finished."""
        return frozenset(step.name for step in self.steps[done:])

    def count(self, action: EvictionAction) -> int:
        return sum(step.action is action for step in self.steps)


def pack_plan(plan: EvictionPlan) -> bytes:
    steps = [[step.action.value, step.name, step.version] for step in plan.steps]
    packed: bytes = msgpack.packb([plan.revision, plan.kept, steps])
    return packed


def unpack_plan(packed: bytes) -> EvictionPlan:
    revision, kept, steps = msgpack.unpackb(packed)
    return EvictionPlan(revision, kept, tuple(Step(EvictionAction(action), *rest) for action, *rest in steps))
