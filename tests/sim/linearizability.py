"""Whether a history is linearizable: Wing and Gong's search, with Lowe's cache of configurations and his partitioning.

An operation takes effect at one moment between its beginning and its end (Herlihy and Wing). The search places one
after the other: next may be any that began before the first end of those that are not placed. A configuration is the
set of the placed ones and the resulting state; one that was seen is not entered again (Lowe 2017, Porcupine).

Why 10,000 operations of a few clients are feasible:
- All but a window of the completed operations is a prefix of them in the order of their beginnings, so the set is a
  number and a few bits.
- A read that fits changes nothing: it is placed at once and nothing else is tried there. (In any order that works it
  may be moved to this place.)
- An operation without an end may take effect at any later time or never. It is tried when nothing else fits, and must
  be of use to the very next one: a configuration that is the same without it, or with it one place later, is not
  entered.

A history with many of those can still be too much: then the result is GAVE_UP, after `steps_max` calls of the model,
and never a guess.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

STEPS_MAX = 4_000_000
"""Some twenty seconds. Half of it was too little for a valid history (disks 400008)."""
SHOWN = 6
"""Operations of the prefix that an explanation ends with."""

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Op:
    """`began`, `ended`: places in one order. `ended` None: it may take effect at any later time, or never.

    `places`: the places places for explanations, if a model has narrowed the others.
    """

    began: int
    ended: int | None
    asked: Any
    answered: Any = None
    by: str = ""
    places: tuple[int, int] | None = None


class Model(Protocol[S]):
    """One object, or several that are independent."""

    def parts(self, ops: Sequence[Op]) -> Iterable[tuple[Model[Any], Sequence[Op]]]:
        """The history is linearizable if and only if each of the parts is, by its own model."""

    def init(self) -> S:
        """The initial state."""

    def step(self, state: S, op: Op) -> Iterable[S]:
        """Every state that it may lead to with its result; empty: the result is impossible in this state.

        Without an end it has no result: any effect is possible.
        """

    def only_reads(self, op: Op) -> bool:
        """It changes no state, wherever it is placed, except for knowledge about the state."""

    def describe(self, op: Op) -> str:
        """A short text: the request and the result."""


class Verdict(enum.Enum):
    LINEARIZABLE = "linearizable"
    VIOLATION = "violation"
    GAVE_UP = "gave up"


@dataclass(frozen=True, slots=True)
class Report:
    """`states`: configurations that were entered; `steps`: calls of the model, which determine the time. `explanation`:
    lines; empty for LINEARIZABLE."""

    verdict: Verdict
    states: int
    steps: int
    explanation: tuple[str, ...] = ()


class Configuration(NamedTuple, Generic[S]):
    """Completed operations below `base` are placed, and those that have a bit in `window` above it."""

    base: int
    window: int
    opened: int
    state: S


def check(model: Model[Any], ops: Iterable[Op], steps_max: int = STEPS_MAX) -> Report:
    """A violation in any part outweighs giving up in another one; the budget is for all of them."""
    states = steps = 0
    gave_up: tuple[str, ...] = ()
    for part, inside in model.parts(tuple(ops)):
        search = _Search(part, inside, steps_max - steps)
        verdict = search.run()
        states, steps = states + search.states, steps + search.steps
        if verdict is Verdict.VIOLATION:
            return Report(verdict, states, steps, _explained(part, inside, search))
        if verdict is Verdict.GAVE_UP:
            gave_up = (*gave_up, f"gave up after {search.states} configurations of {len(inside)} operations")
    return Report(Verdict.GAVE_UP if gave_up else Verdict.LINEARIZABLE, states, steps, gave_up)


def _explained(part: Model[Any], ops: Sequence[Op], search: _Search[Any]) -> tuple[str, ...]:
    """By the recorded times: the narrowed ones would show the violation too early."""
    if any(op.places for op in ops):
        search = _Search(
            part, [replace(op, began=op.places[0], ended=op.places[1]) if op.places else op for op in ops], 100_000
        )
        search.run()
    return search.explained()


class _Search(Generic[S]):
    def __init__(self, model: Model[S], ops: Sequence[Op], steps_max: int) -> None:
        self._model = model
        self._steps_max = steps_max
        self._done = sorted((op for op in ops if op.ended is not None), key=lambda op: op.began)
        self._open = sorted((op for op in ops if op.ended is None), key=lambda op: op.began)
        self._ends = [op.ended or 0 for op in self._done]
        self.states = self.steps = 0
        self._placed: list[Op] = []
        self._longest = -1
        self._prefix: list[Op] = []
        self._stuck: list[Op] = []

    def run(self) -> Verdict:
        start: Configuration[S] = Configuration(0, 0, 0, self._model.init())
        seen, before = {start}, [start.state]
        if self._is_whole(start):
            return Verdict.LINEARIZABLE
        stack = [self._next(start, None)]
        while stack:
            step = next(stack[-1], None)
            if step is None:
                stack.pop()
                before.pop()
                if stack:
                    self._placed.pop()
                continue
            op, configuration = step
            if configuration in seen:
                continue
            if self.steps >= self._steps_max:
                return Verdict.GAVE_UP
            self.states += 1
            seen.add(configuration)
            if self._is_whole(configuration):
                return Verdict.LINEARIZABLE
            self._placed.append(op)
            stack.append(self._next(configuration, None if op.ended is not None else (before[-1], op)))
            before.append(configuration.state)
        return Verdict.VIOLATION

    def _is_whole(self, configuration: Configuration[S]) -> bool:
        return configuration.base == len(self._done)

    def _next(self, at: Configuration[S], used: tuple[S, Op] | None) -> Iterator[tuple[Op, Configuration[S]]]:
        """What may be placed next, and the resulting configuration. `used`: the open operation placed last, and before
        what.

        Operations that time requires first are tried first; then those that make them possible; then all others. The
        same configuration may occur twice.
        """
        candidates, bound = self._candidates(at)
        if not candidates:
            return
        for index in candidates:
            op = self._done[index]
            if self._model.only_reads(op) and at.state in self._step(at.state, op):
                if not (used and self._is_covered(used, op, at.state)):
                    yield op, self._with(at, index, at.state)
                return
        first = self._done[candidates[0]]
        if not self._step(at.state, first):
            for op, after in self._all(at, candidates[1:], bound):
                if self._step(after.state, first) and not (used and self._is_covered(used, op, after.state)):
                    yield op, after
        for op, after in self._all(at, candidates, bound):
            if not (used and self._is_covered(used, op, after.state)):
                yield op, after

    def _all(self, at: Configuration[S], candidates: list[int], bound: float) -> Iterator[tuple[Op, Configuration[S]]]:
        for index in candidates:
            op = self._done[index]
            for state in self._step(at.state, op):
                yield op, self._with(at, index, state)
        for number, op in enumerate(self._open):
            if op.began > bound:
                return
            if not at.opened >> number & 1:
                for state in self._step(at.state, op):
                    if state != at.state:
                        yield op, at._replace(opened=at.opened | 1 << number, state=state)

    def _step(self, state: S, op: Op) -> tuple[S, ...]:
        self.steps += 1
        return tuple(self._model.step(state, op))

    def _is_covered(self, used: tuple[S, Op], op: Op, state: S) -> bool:
        """Whether `op` leads to this state as well without the open operation before it, or with it after it."""
        before, opened = used
        without = self._step(before, op)
        if state in without:
            return True
        return op.ended is not None and any(state in self._step(each, opened) for each in without)

    def _candidates(self, at: Configuration[S]) -> tuple[list[int], float]:
        """Of the completed operations: those that began before the first end of all that are not placed; that end."""
        found, bound = [], inf
        for index in range(at.base, len(self._done)):
            if self._done[index].began > bound:
                break
            if not at.window >> (index - at.base) & 1:
                found.append(index)
                bound = min(bound, self._ends[index])
        self._note(at, found)
        found = [index for index in found if self._done[index].began <= bound]
        return sorted(found, key=self._ends.__getitem__), bound

    def _with(self, at: Configuration[S], index: int, state: S) -> Configuration[S]:
        base, window = at.base, at.window | 1 << (index - at.base)
        while window & 1:
            window >>= 1
            base += 1
        return Configuration(base, window, at.opened, state)

    def _note(self, at: Configuration[S], candidates: list[int]) -> None:
        placed = at.base + at.window.bit_count()
        if placed > self._longest:
            self._longest = placed
            self._prefix = self._placed[-SHOWN:]
            self._stuck = [self._done[index] for index in candidates]

    def explained(self) -> tuple[str, ...]:
        """The end of the longest linearizable prefix, and the operations that could not be placed after it."""
        describe = self._model.describe
        return (
            f"not linearizable: {self._longest} of {len(self._done)} completed operations have an order, the last ones",
            *(f"    {_when(op)} {op.by}: {describe(op)}" for op in self._prefix),
            "and none of these can be the next:",
            *(f"    {_when(op)} {op.by}: {describe(op)}" for op in self._stuck[: 2 * SHOWN]),
        )


def _when(op: Op) -> str:
    began, ended = op.places or (op.began, op.ended)
    return f"[{began}, {'...' if ended is None else ended}]"
