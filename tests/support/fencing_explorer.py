"""Exhaustive exploration of `fencing_world.py` in a small scope: until no step leads to a new world.

Two reductions keep it small, and neither hides a stale read:

- Every reader reads after each step. A read changes nothing but the values known to have been returned, and the more
  values were returned, and the earlier, the more later reads are stale.
- Messages are not removed when they arrive: each may arrive again, at any time, and one that never arrives is lost.
  Omitted are messages that no holder could accept, by the rules of `palisade/fencing/lease.py`: a grant that has
  expired, was promised away, or is shorter than the lease; a renewal that could only get such a grant; a release of a
  released revision. If these rules were broken, fewer messages would have to be omitted: so `test_exhaustive.py` also
  finds faults of the model here. The walks omit nothing.

`python -m tests.support.fencing_explorer SCOPE`, `--plant FAULT` with a fault of `fencing_faults.py`.
"""

from __future__ import annotations

import argparse
import enum
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from palisade.fencing.messages import GrantMessage, Release, Renew
from palisade.fencing.timing import FenceTiming
from tests.support import breadth_first
from tests.support.breadth_first import Explored, Violated
from tests.support.fencing_faults import FAULTS
from tests.support.fencing_holders import Step
from tests.support.fencing_parts import Message, Scope, Stale
from tests.support.fencing_walks import begin, report
from tests.support.fencing_world import World

LEASES = ("tick", "quorum", "elect", "commit", "learn", "advance", "stage", "release", "renew", "mark", "repeat")
CHANGES = tuple(move for move in LEASES if move not in ("tick", "quorum", "elect"))
RETURNS = ("kill", "start", "hello", "join", "listen", "activate", "promise", "apply")
TINY = Scope(
    holders=1, revisions=1, terms=1, ticks=2, tick_s=1.0, keys=1, processes=1, powers=False, quorum_s=0.5,
    timing=FenceTiming(fence_s=1.5, drift=0.0, margin_s=0.0), messages_max=100,
)  # fmt: skip
"""A lease lasts for this tick and the next one, a quorum lease for this one."""
SCOPES: dict[str, tuple[Scope, tuple[str, ...]]] = {
    "two terms": (replace(TINY, terms=2, ticks=1), LEASES),
    "two changes": (replace(TINY, revisions=2, ticks=0), CHANGES),
    "an old leader": (replace(TINY, terms=2, ticks=3, prelude=("tick", "elect")), LEASES),
    "two terms, longer": (replace(TINY, terms=2), LEASES),
    "two changes, longer": (replace(TINY, revisions=2, ticks=1), LEASES),
    "two holders": (replace(TINY, holders=2, processes=2, ticks=1), LEASES),
    "a holder comes back": (replace(TINY, ticks=1, hellos=2, starts=2), LEASES + RETURNS),
}
"""The first four are explored to the end within a minute (14,682 worlds in the fourth); the others take longer."""
VALUES = (int, float, str, bytes, type(None), tuple, enum.Enum, type, Scope)
FOR_SHOW = {
    "reads", "scope", "_timing", "_finished", "heard_at", "granted_at", "fenced_at", "_order", "_proven",
    "_last_failure", "said",
}  # fmt: skip
"""Fields on which no decision depends."""


def explore(scope: Scope, moves: tuple[str, ...], worlds_max: int) -> Explored[Step]:
    start = begin(scope)
    for move in scope.prelude:
        start.do(move, start.options(move)[0])
    look(start)
    return breadth_first.explore(start, key_of, lambda world: steps_of(world, moves), worlds_max)


def steps_of(world: World, moves: tuple[str, ...]) -> Iterator[tuple[Step, World]]:
    """Raises Violated."""
    for move in moves:
        for number, option in enumerate(world.options(move)):
            after: World = clone(world)
            try:
                after.do(move, after.options(move)[number])
                look(after)
            except Stale as stale:
                raise Violated(str(stale), (move, option)) from stale
            yield (move, option), after


def look(world: World) -> None:
    """Every reader that may read does so."""
    world.do_all("read", "answer")


def key_of(world: World) -> Any:
    """Equal for worlds that behave alike. The order in which messages were sent is irrelevant."""
    messages = [message for message in world.messages if not is_spent(world, message)]
    world.messages = []
    frozen = freeze(world)
    world.messages = messages
    return frozen, frozenset(map(freeze, messages))


def is_spent(world: World, message: Message) -> bool:
    to, _, process, what = message
    holder = world.processes[process].holder
    if holder is None:
        return False
    said = what[1] if to == "L" else what
    if isinstance(said, Renew | GrantMessage):
        lease = holder._lease
        run_out = world._clock_of(process) >= said.t0 + world.scope.timing.fence_s
        return run_out or said.t0 < max(lease._not_before, lease.t0)
    return isinstance(said, Release) and said.released <= holder.released and said.term <= holder.term


# Copies of a world, and keys that are equal exactly if two worlds behave alike


@cache
def names_of(kind: type) -> tuple[str, ...] | None:
    """The fields of its instances; None: they are values, or frozen."""
    params = getattr(kind, "__dataclass_params__", None)
    if issubclass(kind, VALUES) or (params is not None and params.frozen):
        return None
    slots = [name for base in kind.__mro__ for name in getattr(base, "__slots__", ()) if not name.startswith("__")]
    return tuple(slots) if params is None or not hasattr(kind, "__dict__") else tuple(kind.__dataclass_fields__)


def freeze(thing: Any) -> Any:
    kind = type(thing)
    if kind is list or kind is deque:
        return tuple([freeze(each) for each in thing])
    if kind is dict:
        return tuple([(key, freeze(value)) for key, value in thing.items()])
    if kind is tuple:
        return tuple([freeze(each) for each in thing]) if thing else thing
    names = names_of(kind)
    if names is None:
        fields = getattr(kind, "__dataclass_fields__", None)
        return thing if fields is None else (kind, *[freeze(getattr(thing, name)) for name in fields])
    return tuple([freeze(getattr(thing, name)) for name in names if name not in FOR_SHOW])


def clone(thing: Any) -> Any:
    kind = type(thing)
    if kind is list:
        return [clone(each) for each in thing]
    if kind is deque:
        return deque([clone(each) for each in thing], thing.maxlen)
    if kind is dict:
        return {key: clone(value) for key, value in thing.items()}
    names = names_of(kind)
    if names is None:
        return thing
    made = kind.__new__(kind)
    for name in names:
        setattr(made, name, None if name == "_order" else clone(getattr(thing, name)))
    return made


def with_fault(scope: Scope, name: str) -> Scope:
    """The small scope, with the broken rule of that fault."""
    fault = FAULTS[name]
    broken = ("holder", "releases", "registry", "asks_quorum", "answers_at_rr", "gated", "marks_first")
    return replace(scope, **{each: getattr(fault, each) for each in broken})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scope", choices=SCOPES)
    parser.add_argument("--plant", choices=FAULTS)
    parser.add_argument("--worlds", type=int, default=1_000_000, help="stop after so many")
    options = parser.parse_args()
    scope, moves = SCOPES[options.scope]
    began = time.monotonic()
    explored = explore(with_fault(scope, options.plant) if options.plant else scope, moves, options.worlds)
    extent = f"all of them, none further than {explored.depth} steps" if explored.everything else "not all of them"
    print(f"{explored.worlds} worlds, {extent}, in {time.monotonic() - began:.1f} s")
    report(explored.violation, explored.trace)


if __name__ == "__main__":
    main()
