"""A replicated map of registers, as small as a state machine can be that checkers can look into."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgpack

Observer = Callable[[int, int, tuple[bytes, ...]], None]


def put(operation: str, key: str, value: str) -> bytes:
    packed: bytes = msgpack.packb([operation, key, value])
    return packed


class RegisterMachine:
    """A `raftgroup.ports.StateMachine`. `log` is everything applied: (index, term, commands). `persist` makes all of
    it survive `crash`; the rest is lost with the process, as it is with a write-behind store."""

    def __init__(self, observe: Observer = lambda *_: None) -> None:
        self.observe = observe
        self.log: list[tuple[int, int, tuple[bytes, ...]]] = []
        self.registers: dict[str, str] = {}
        self._durable = 0
        self._base = (0, 0)
        self.fail_at: int | None = None

    @property
    def applied(self) -> tuple[int, int]:
        return self.log[-1][:2] if self.log else (0, 0)

    @property
    def durable(self) -> tuple[int, int]:
        return self.log[self._durable - 1][:2] if self._durable else (0, 0)

    def persist(self) -> None:
        self._durable = len(self.log)

    def crash(self) -> None:
        del self.log[self._durable :]
        self.registers = {}
        for _, _, commands in self.log:
            self._run(commands)

    def lead(self, now: float, wall_ms: int) -> None: ...

    def stamp(self, now: float, wall_ms: int) -> Any:
        return wall_ms

    def apply(self, index: int, term: int, stamp: Any, commands: Sequence[bytes]) -> list[Any]:
        if index == self.fail_at:
            raise RuntimeError("the state machine broke")
        self._append(index, term, tuple(commands))
        return self._run(commands, index)

    def skip(self, index: int, term: int) -> None:
        self._append(index, term, ())

    def _append(self, index: int, term: int, commands: tuple[bytes, ...]) -> None:
        if index != self.applied[0] + 1:
            raise AssertionError(f"index {index} is applied after {self.applied[0]}")
        self.observe(index, term, commands)
        self.log.append((index, term, commands))

    def _run(self, commands: Sequence[bytes], index: int = 0) -> list[Any]:
        results = []
        for command in commands:
            operation, key, value = msgpack.unpackb(command)
            self.registers[key] = value
            results.append([operation, index])
        return results
