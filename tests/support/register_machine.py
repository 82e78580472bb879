"""A replicated map of registers: the smallest state machine that checkers can inspect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgpack

from palisade.base.snapshots import SnapshotInvalid, SnapshotMeta

Observer = Callable[[int, int, tuple[bytes, ...]], None]


def put(operation: str, key: str, value: str) -> bytes:
    packed: bytes = msgpack.packb([operation, key, value])
    return packed


class RegisterMachine:
    """A `raftgroup.ports.StateMachine`. `log` is everything applied: (index, term, commands). `persist` makes all of it
    survive `crash`; the rest is lost with the process, as it is with a write-behind store."""

    def __init__(self, observe: Observer = lambda *_: None) -> None:
        self.observe = observe
        self.log: list[tuple[int, int, tuple[bytes, ...]]] = []
        self.registers: dict[str, str] = {}
        self._durable = 0
        self.fail_at: int | None = None
        self.installs = 0
        self.incoming: dict[str, list[bytes]] = {}

    @property
    def applied(self) -> tuple[int, int]:
        return self.log[-1][:2] if self.log else (0, 0)

    @property
    def durable(self) -> tuple[int, int]:
        return self.log[self._durable - 1][:2] if self._durable else (0, 0)

    async def open_snapshot(self) -> _Reader:
        return _Reader(self.log)

    def receive_snapshot(self, meta: SnapshotMeta) -> _Writer:
        return _Writer(self, meta)

    def install(self, log: list[tuple[int, int, tuple[bytes, ...]]]) -> None:
        if log[-1][0] <= self.applied[0]:
            raise AssertionError(f"a snapshot of index {log[-1][0]} is installed over {self.applied[0]}")
        for index, term, commands in log:
            self.observe(index, term, commands)
        self.installs += 1
        self.log = log
        self._durable = len(log)
        self.registers = {}
        for index, _, commands in log:
            self._run(commands, index)

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


class _Reader:
    """A `SnapshotReader`: the log itself, in small pieces."""

    def __init__(self, log: list[tuple[int, int, tuple[bytes, ...]]]) -> None:
        packed: bytes = msgpack.packb(log)
        size = max(len(packed) // 7, 1)
        self._pieces = [packed[start : start + size] for start in range(0, len(packed), size)]
        index, term, _ = log[-1]
        self.meta = SnapshotMeta(f"{index}.{term}", index, term, len(packed))

    def chunk(self, number: int) -> bytes | None:
        return self._pieces[number] if number < len(self._pieces) else None

    def close(self) -> None: ...


class _Writer:
    """A `SnapshotWriter`: received pieces survive a crash, so that the transfer can be resumed."""

    def __init__(self, machine: RegisterMachine, meta: SnapshotMeta) -> None:
        self._machine = machine
        self._meta = meta
        self._pieces = machine.incoming.setdefault(meta.id, [])

    @property
    def next_chunk(self) -> int:
        return len(self._pieces)

    def write(self, number: int, data: bytes) -> None:
        if number != len(self._pieces):
            raise AssertionError(f"piece {number} was written where {len(self._pieces)} was expected")
        self._pieces.append(data)

    async def finish(self) -> None:
        await asyncio.sleep(0.01)
        packed = b"".join(self._pieces)
        if len(packed) != self._meta.size_bytes:
            raise SnapshotInvalid(f"{len(packed)} of {self._meta.size_bytes} bytes")
        self._machine.incoming.clear()
        self._machine.install([(index, term, tuple(commands)) for index, term, commands in msgpack.unpackb(packed)])

    def abort(self) -> None:
        self._machine.incoming.pop(self._meta.id, None)
