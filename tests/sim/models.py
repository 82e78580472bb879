"""A register, as a model for `linearizability`: written, read, swapped if it has the expected value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tests.sim.linearizability import Op


class Write(NamedTuple):
    value: Any


class Read(NamedTuple):
    """The result is the value."""


class Swap(NamedTuple):
    """The result is whether the value was `old`, and is `new` now."""

    old: Any
    new: Any


class Register:
    """Takes Write, Read, Swap."""

    def __init__(self, initial: Any = None) -> None:
        self._initial = initial

    def parts(self, ops: Sequence[Op]) -> Iterable[tuple[Register, Sequence[Op]]]:
        return ((self, ops),)

    def init(self) -> Any:
        return self._initial

    def step(self, state: Any, op: Op) -> Iterable[Any]:
        match op.asked:
            case Write(value):
                return (value,)
            case Read():
                return (state,) if op.ended is None or op.answered == state else ()
            case Swap(old, new):
                done = state == old
                return (new if done else state,) if op.ended is None or op.answered is done else ()
        raise TypeError(f"no operation of a register: {op}")

    def only_reads(self, op: Op) -> bool:
        return isinstance(op.asked, Read) or (isinstance(op.asked, Swap) and op.answered is False)

    def describe(self, op: Op) -> str:
        return f"{op.asked} -> {'?' if op.ended is None else op.answered}"
