"""Random walks through `fencing_world.py`. Exhaustive, in a small scope: `fencing_explorer.py`.

`python -m tests.support.fencing_walks --walks 1000000 --seed 7` continues the walks; `--plant no_promise` walks with a
fault of `fencing_faults.py`. Findings are printed in their shortest form.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from tests.support.fencing_faults import BASES, FAULTS
from tests.support.fencing_holders import Step
from tests.support.fencing_parts import Scope, Stale
from tests.support.fencing_world import World

FINE = {
    "tick": 3, "quorum": 3, "elect": 1.5, "commit": 3, "learn": 3, "depose": 0.2, "advance": 6, "answer": 2, "stage": 6,
    "release": 3, "register": 2, "unregister": 0.1, "hello": 1, "join": 6, "renew": 4, "notice": 3, "promise": 0.5,
    "stop": 0.1, "mark": 8, "unmark": 0.2, "listen": 6, "activate": 8, "apply": 3, "start": 3, "kill": 0.2,
    "power": 0.1, "replace": 0.1, "deliver": 20, "repeat": 2, "lose": 1, "look": 2, "fetch": 2, "finish": 2, "read": 6,
    "hold": 0.5, "arrive": 0.5,
}  # fmt: skip
"""Relative frequencies of moves, one small step at a time."""
COARSE = FINE | {
    "tick": 2, "quorum": 1, "elect": 0.3, "commit": 1, "learn": 2, "advance": 2, "promise": 1, "deliver": 16, "repeat":
    1, "hold": 6, "arrive": 6, "calm": 3, "probe": 4, "reboot": 1, "succeed": 1,
}  # fmt: skip
"""The same where several steps are often made as one: further from the beginning, and less mixed."""
MOVES = tuple(COARSE)
STEPS = 200


@dataclass(frozen=True)
class Found:
    """A walk that ends in a stale read."""

    walk: int
    stale: str
    steps: tuple[Step, ...]


def begin(scope: Scope) -> World:
    """All holders serve."""
    world = World(scope)
    world.calm(0)
    return world


def walk(scope: Scope, rng: Random, steps: int = STEPS) -> tuple[World, list[Step], str | None]:
    """One random walk; the world at its end, its steps, and the stale read, if there was one."""
    world = begin(scope)
    taken: list[Step] = []
    style = scope.moves or rng.choice((FINE, COARSE))
    weights = [style.get(move, 0) * scope.weights.get(move, 1) for move in MOVES]
    try:
        for step in world.take((*scope.prelude, *rng.choices(MOVES, weights, k=steps)), rng):
            taken.append(step)
    except Stale as stale:
        return world, taken, str(stale)
    return world, taken, None


def search(scope: Scope, walks: int, seed: int = 1, steps: int = STEPS) -> tuple[Found | None, int]:
    """Walks until a stale read is found; returns also the number of reads."""
    reads = 0
    for number in range(walks):
        world, taken, stale = walk(scope, Random(seed * 1_000_003 + number), steps)
        reads += world.reads
        if stale is not None:
            return Found(number, stale, tuple(shorten(scope, taken))), reads
    return None, reads


def replay(scope: Scope, steps: list[Step]) -> bool:
    """Whether these steps end in a stale read; impossible steps are skipped."""
    world = begin(scope)
    for move, option in steps:
        if option in world.options(move):
            try:
                world.do(move, option)
            except Stale:
                return True
    return False


def shorten(scope: Scope, steps: list[Step]) -> list[Step]:
    """Removes the steps that are not necessary."""
    number = len(steps)
    while number:
        number -= 1
        fewer = steps[:number] + steps[number + 1 :]
        if replay(scope, fewer):
            steps = fewer
    return steps


def main() -> None:
    options = _parser().parse_args()
    scope = FAULTS[options.plant] if options.plant else BASES[options.base]
    began = time.monotonic()
    found = _walk_on(scope, options, began)
    report(found.stale if found else None, found.steps if found else ())


def report(stale: str | None, steps: Iterable[Step]) -> None:
    """Raises SystemExit for a stale read."""
    print(f"STALE: {stale}" if stale else "nothing stale")
    for step in steps:
        print("   ", *step)
    if stale:
        raise SystemExit(1)


def _walk_on(scope: Scope, options: argparse.Namespace, began: float) -> Found | None:
    done = reads = 0
    while done < options.walks:
        found, more = search(scope, min(10_000, options.walks - done), options.seed + done, options.steps)
        done, reads = done + 10_000, reads + more
        print(f"{min(done, options.walks)} walks, {reads} reads, {time.monotonic() - began:.1f} s", flush=True)
        if found is not None:
            return found
    return None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--walks", type=int, default=20_000, help="how many ways at random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=STEPS, help="length of a walk, impossible steps included")
    parser.add_argument("--base", choices=BASES, default="plain", help="the world around the protocol")
    parser.add_argument("--plant", choices=FAULTS, help="with this fault")
    return parser


if __name__ == "__main__":
    main()
