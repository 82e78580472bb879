"""The state of `fencing_world.py`, and the moves of its holders, vaults and readers, one step at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from palisade.fencing.holder_state import Holder
from palisade.fencing.messages import HolderPhase
from palisade.fencing.release import Registration
from tests.support.fencing_parts import Leader, Message, Process, Scope, Stale, Vault

Step = tuple[str, Any]
"""A move and its option."""


F = TypeVar("F", bound=Callable[..., None])


def move(options: Callable[[HolderMoves], Sequence[Any]]) -> Callable[[F], F]:
    """A step that a world may take with any of these options, which depend on its state."""

    def decorate(step: F) -> F:
        vars(step)["options"] = options
        return step

    return decorate


def move_like(step: Callable[..., None]) -> Callable[[F], F]:
    """A step that overrides this one, with the same options."""
    return move(vars(step)["options"])


def when(possible: Callable[[HolderMoves], bool]) -> Callable[[F], F]:
    """A move without a choice."""
    return move(lambda world: [None] if possible(world) else [])


def of_holders(able: Callable[[Holder, Process], bool]) -> Callable[[F], F]:
    """A move of any running holder for which this holds."""
    return move(lambda world: world.alive(able))


def is_not_stopped(holder: Holder, _: Process) -> bool:
    return holder.state is not HolderPhase.STOPPED


@dataclass
class HolderMoves:
    """The state, the holders and the readers."""

    scope: Scope
    now: float = 0.0
    lm: int = 0
    shown: list[int] = field(default_factory=list)
    """The newest value of each key that any reader got."""
    reads: int = 0
    incarnations: int = 0
    ticks: int = 0
    hellos: int = 0
    registered: dict[str, Registration] = field(default_factory=dict)
    leaders: list[Leader] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    held: list[Message] = field(default_factory=list)
    """Messages that stay in flight for a long time."""

    @property
    def top(self) -> Leader:
        return self.leaders[-1]

    def latest(self, key: int, upto: int) -> int:
        """The value of the key as of that revision."""
        keys, eventual = self.scope.keys, self.scope.eventual
        while upto > 0 and (upto % keys != key or upto in eventual):
            upto -= 1
        return upto

    def value(self, vault: Vault, key: int) -> int | None:
        """The value that a reader finds in this vault; None: the key is pending."""
        keys = self.scope.keys
        for mark in reversed(vault.marks):
            if mark % keys == key:
                return mark if mark <= vault.released else None
        return self.latest(key, vault.lv)

    def show(self, key: int, value: int, before: int, where: str) -> None:
        """A reader got the value; `before` had been returned when the read began."""
        self.reads += 1
        if value < before:
            raise Stale(f"{where} shows {value} for key {key}, and {before} had been shown")
        self.shown[key] = max(self.shown[key], value)

    def _send(self, message: Message) -> None:
        """The oldest message is lost if too many are in flight."""
        if message not in self.messages:
            if len(self.messages) >= self.scope.messages_max:
                del self.messages[0]
            self.messages.append(message)

    def _answer(self, number: int, what: Any) -> None:
        """To the leader of that holder; None: nothing is sent."""
        if what is not None:
            process = self.processes[number]
            self._send(("L", process.leader, number, (process.id, what)))

    def _clock_of(self, number: int) -> float:
        return self.processes[number].clock(self.now)

    def _call(self, number: int, method: str, *more: Any) -> Any:
        process = self.processes[number]
        return process.call(method, process.clock(self.now), *more)

    def alive(self, able: Callable[[Holder, Process], bool] = lambda _h, _p: True) -> list[int]:
        return [i for i, p in enumerate(self.processes) if p.holder is not None and able(p.holder, p)]

    # Moves

    def options(self, move: str) -> list[Any]:
        found: list[Any] = getattr(type(self), move).options(self)
        return found

    def do(self, move: str, option: Any) -> None:
        getattr(self, move)(option)

    def take(self, moves: Iterable[str], rng: Random) -> Iterator[Step]:
        """Those that are possible, each with any of its options. A step is yielded before it is executed."""
        for move in moves:
            found = self.options(move)
            if found:
                option = found[0] if len(found) == 1 else rng.choice(found)
                yield move, option
                self.do(move, option)

    @move(
        lambda world: [
            (holder, node)
            for holder in world.alive(is_not_stopped)
            for node in range(min(len(world.leaders), world.scope.leader_nodes))
            if world.hellos < world.scope.hellos
        ]
    )
    def hello(self, option: tuple[int, int]) -> None:
        number, leader = option
        self.hellos += 1
        process = self.processes[number]
        process.leader = leader
        self._answer(number, self._call(number, "hello", process.vault.lv))

    @of_holders(lambda holder, _: holder.wants_join)
    def join(self, number: int) -> None:
        self._answer(number, self._call(number, "join", self.processes[number].vault.lv))

    @of_holders(is_not_stopped)
    def renew(self, number: int) -> None:
        self._answer(number, self._call(number, "renew"))

    @move(lambda world: world.alive(lambda h, p: h.state is HolderPhase.ACTIVE and not h.serves(p.clock(world.now))))
    def notice(self, number: int) -> None:
        """A holder checks its clock."""
        self._call(number, "tick")

    @of_holders(lambda holder, _: holder.state is not HolderPhase.ACTIVE)
    def promise(self, number: int) -> None:
        self._answer(number, self._call(number, "promise"))

    @of_holders(is_not_stopped)
    def stop(self, number: int) -> None:
        self._answer(number, self._call(number, "stop"))

    @of_holders(lambda _, process: bool(process.queue))
    def mark(self, number: int) -> None:
        """The vault commits marks."""
        self._answer(number, self.processes[number].mark(self._clock_of(number)))

    @of_holders(lambda _, process: bool(process.queue))
    def unmark(self, number: int) -> None:
        """The vault fails to commit them."""
        self.processes[number].queue.clear()
        self._call(number, "mark_failed")

    @move(lambda world: world.alive(lambda holder, process: holder.wants_recovery(process.clock(world.now))))
    def listen(self, number: int) -> None:
        """The recovery listeners run, and succeed."""
        self._call(number, "begin_recovery")
        self._call(number, "recovered")

    @of_holders(lambda holder, _: holder.state is HolderPhase.RECOVERING)
    def activate(self, number: int) -> None:
        self._call(number, "activate", self.processes[number].vault.lv)

    def may_apply(self, holder: Holder, vault: Vault) -> bool:
        """The gate: the vault of an active holder applies no strict change that is not released."""
        following = vault.lv + 1
        shut = holder.gated and self.scope.gated
        return not shut or following <= vault.released or following in self.scope.eventual

    @move(lambda world: world.alive(lambda h, p: p.vault.lv < world.lm and world.may_apply(h, p.vault)))
    def apply(self, number: int) -> None:
        self.processes[number].vault.apply()

    # Ends and beginnings

    def _new_process(self, node: str, vault: Vault) -> None:
        """Its clock is that of its machine."""
        number, rates = len(self.processes), self.scope.rates
        offset = 1000.0 * (int(vault.name[-1]) + 1) + 100.0 * int(node[-1])
        self.processes.append(Process(node, vault, offset, rates[number % len(rates)]))
        self.start(number)

    @move(
        lambda world: [
            number
            for number, process in enumerate(world.processes)
            if process.holder is None and world.incarnations < world.scope.starts
        ]
    )
    def start(self, number: int) -> None:
        process, scope = self.processes[number], self.scope
        self.incarnations += 1
        if scope.fences_at_start:
            process.vault.open()
        timing = scope.timings[self.incarnations % len(scope.timings)] if scope.timings else scope.timing
        process.start(self.incarnations, timing, self._clock_of(number), scope.holder)

    @move(lambda world: world.alive())
    def kill(self, number: int) -> None:
        """kill -9: vault and page stay as they are, and so do readers in other processes."""
        process = self.processes[number]
        process.holder = None
        process.queue.clear()

    @move(lambda world: world.alive() if world.scope.powers else [])
    def power(self, number: int) -> None:
        """Power loss: the clock starts again, too."""
        self.kill(number)
        process = self.processes[number]
        process.vault.lose_power()
        process.offset = 1.0 - process.rate * self.now

    @move(lambda world: world.alive() if len(world.processes) < world.scope.processes else [])
    def replace(self, number: int) -> None:
        """Another process starts with an empty vault under the same name; the first one and its readers stay."""
        node = self.processes[number].node
        self._new_process(node, self.scope.vault(f"{node}-v{len(self.processes)}"))

    # Readers in other processes, one for each vault; those of a replaced vault stay

    def serves(self, process: Process) -> bool:
        vault = process.vault
        return vault.active and process.clock(self.now) < vault.deadline

    @move(
        lambda world: [
            (i, key)
            for i, p in enumerate(world.processes)
            if p.vault.read is None and (world.serves(p) or (p.vault.opened and not world.scope.checks))
            for key in range(world.scope.keys)
        ]
    )
    def look(self, option: tuple[int, int]) -> None:
        """A read begins: the fence page permits reads of the vault."""
        number, key = option
        vault = self.processes[number].vault
        vault.opened = True
        vault.read = (key, self.shown[key], vault.activation, None)

    @move(lambda world: [i for i, p in enumerate(world.processes) if p.vault.read])
    def fetch(self, number: int) -> None:
        """It reads the vault."""
        vault = self.processes[number].vault
        assert vault.read is not None
        key, before, activation, _ = vault.read
        value = self.value(vault, key)
        vault.read = None if value is None else (key, before, activation, value)

    @move(lambda world: [i for i, p in enumerate(world.processes) if p.vault.read and p.vault.read[3] is not None])
    def finish(self, number: int) -> None:
        """It checks the page again, and returns its result."""
        process = self.processes[number]
        vault = process.vault
        assert vault.read is not None
        key, before, activation, value = vault.read
        vault.read = None
        still = self.serves(process) and vault.activation == activation
        if value is not None and (still or not self.scope.checks):
            self.show(key, value, before, f"vault {vault.name}")

    @move(
        lambda world: [
            (i, k) for i, p in enumerate(world.processes) if world.serves(p) for k in range(world.scope.keys)
        ]
    )
    def read(self, option: tuple[int, int]) -> None:
        """All steps of a read at once."""
        number, key = option
        vault = self.processes[number].vault
        value = self.value(vault, key)
        if value is not None:
            self.show(key, value, self.shown[key], f"vault {vault.name}")
