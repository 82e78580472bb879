"""The moves of holders, their vaults and readers in `fencing_world.py`, one step at a time."""

from __future__ import annotations

from typing import Any

from palisade.fencing.holder_state import Holder
from palisade.fencing.lease import NEVER
from palisade.fencing.messages import HolderPhase
from tests.support.fencing_parts import Parts, Process, Vault


class HolderMoves(Parts):
    """For each move `x`: `can_x` lists its options, `x` executes it."""

    def can_hello(self) -> list[Any]:
        if self.hellos >= self.scope.hellos:
            return []
        nodes = min(len(self.leaders), self.scope.leader_nodes)
        return [(i, n) for i in self._alive(lambda h, _: h.state is not HolderPhase.STOPPED) for n in range(nodes)]

    def hello(self, option: tuple[int, int]) -> None:
        number, leader = option
        self.hellos += 1
        process = self.processes[number]
        process.leader = leader
        self._send_if_any(number, self._call(number, "hello", self._clock_of(number), process.vault.lv))

    def can_join(self) -> list[Any]:
        return self._alive(lambda h, _: h.wants_join)

    def join(self, number: int) -> None:
        self._send_if_any(number, self._call(number, "join", self._clock_of(number), self.processes[number].vault.lv))

    def can_renew(self) -> list[Any]:
        return self._alive(lambda h, _: h.state is not HolderPhase.STOPPED)

    def renew(self, number: int) -> None:
        self._send_if_any(number, self._call(number, "renew", self._clock_of(number)))

    def can_notice(self) -> list[Any]:
        """A holder checks its clock."""
        return self._alive(lambda h, p: h.state is HolderPhase.ACTIVE and not h.serves(self.clock(p, self.now)))

    def notice(self, number: int) -> None:
        self._call(number, "tick", self._clock_of(number))

    def can_promise(self) -> list[Any]:
        return self._alive(lambda h, _: h.state is not HolderPhase.ACTIVE)

    def promise(self, number: int) -> None:
        self._send_if_any(number, self._call(number, "promise", self._clock_of(number)))

    def can_stop(self) -> list[Any]:
        return self._alive(lambda h, _: h.state is not HolderPhase.STOPPED) if self.scope.crashes else []

    def stop(self, number: int) -> None:
        self._send_if_any(number, self._call(number, "stop", self._clock_of(number)))

    def can_mark(self) -> list[Any]:
        return self._alive(lambda _, p: bool(p.queue))

    def mark(self, number: int) -> None:
        """The vault commits marks."""
        process = self.processes[number]
        mark = process.queue.pop(0)
        vault = process.vault
        new = {row[0] for row in mark.rows}
        vault.marks = tuple(sorted(new if mark.anew else new | set(vault.marks)))
        self._send_if_any(number, self._call(number, "marked", mark, self._clock_of(number)))

    def can_unmark(self) -> list[Any]:
        return self._alive(lambda _, p: bool(p.queue))

    def unmark(self, number: int) -> None:
        """The vault fails to commit them."""
        self.processes[number].queue.clear()
        self._call(number, "mark_failed", self._clock_of(number))

    def can_listen(self) -> list[Any]:
        return self._alive(lambda h, p: h.wants_recovery(self.clock(p, self.now)))

    def listen(self, number: int) -> None:
        """The recovery listeners run, and succeed."""
        self._call(number, "begin_recovery", self._clock_of(number))
        self._call(number, "recovered", self._clock_of(number))

    def can_activate(self) -> list[Any]:
        return self._alive(lambda h, _: h.state is HolderPhase.RECOVERING)

    def activate(self, number: int) -> None:
        self._call(number, "activate", self._clock_of(number), self.processes[number].vault.lv)

    def can_apply(self) -> list[Any]:
        return self._alive(lambda h, p: p.vault.lv < self.lm and self._may_apply(h, p.vault))

    def _may_apply(self, holder: Holder, vault: Vault) -> bool:
        """The gate: the vault of an active holder applies no strict change that is not released."""
        following = vault.lv + 1
        shut = holder.gated and self.scope.gated
        return not shut or following <= vault.released or following in self.scope.eventual

    def apply(self, number: int) -> None:
        vault = self.processes[number].vault
        vault.lv += 1
        vault.clean()

    # Ends and beginnings

    def _new_process(self, node: str, vault: Vault) -> None:
        rates = self.scope.rates
        process = Process(node, vault, 0, rates[len(self.processes) % len(rates)])
        self.processes.append(process)
        self.start(len(self.processes) - 1)

    def can_start(self) -> list[Any]:
        if self.incarnations >= self.scope.starts:
            return []
        return [i for i, process in enumerate(self.processes) if process.holder is None]

    def start(self, number: int) -> None:
        """The page becomes FENCED first."""
        process = self.processes[number]
        self.incarnations += 1
        process.incarnation = self.incarnations
        if self.scope.fences_at_start:
            process.vault.active = False
        timing = (
            self.scope.timings[self.incarnations % len(self.scope.timings)] if self.scope.timings else self.scope.timing
        )
        process.holder = self.scope.holder(process.id, timing, self._clock_of(number), term=process.vault.term)

    def can_kill(self) -> list[Any]:
        return self._alive(lambda _h, _p: True) if self.scope.crashes else []

    def kill(self, number: int) -> None:
        """kill -9: vault and page stay as they are, and so do readers in other processes."""
        process = self.processes[number]
        process.holder = None
        process.queue.clear()

    def can_power(self) -> list[Any]:
        return self.can_kill() if self.scope.powers else []

    def power(self, number: int) -> None:
        """Power loss: marks are not synced, commits of the vault may be lost, its readers are gone, and its clock
        starts again."""
        self.kill(number)
        process = self.processes[number]
        vault = process.vault
        vault.marks, vault.lv = (), vault.lv // 2
        vault.active, vault.deadline, vault.released, vault.term, vault.read = False, NEVER, 0, 0, None
        process.offset = 1.0 - process.rate * self.now

    def can_replace(self) -> list[Any]:
        return (
            self._alive(lambda _h, _p: True)
            if self.scope.crashes and len(self.processes) < self.scope.processes
            else []
        )

    def replace(self, number: int) -> None:
        """Another process starts with an empty vault under the same name; the first one and its readers stay."""
        node = self.processes[number].node
        self._new_process(node, Vault(f"{node}-v{len(self.processes)}"))

    # Readers in other processes, one for each vault; those of a replaced vault stay

    def _serves(self, process: Process) -> bool:
        vault = process.vault
        return vault.active and self.clock(process, self.now) < vault.deadline

    def can_look(self) -> list[Any]:
        """A read begins: the fence page permits reads of the vault."""
        return [
            (i, key)
            for i, p in enumerate(self.processes)
            if p.vault.read is None and (self._serves(p) or (p.vault.opened and not self.scope.checks))
            for key in range(self.scope.keys)
        ]

    def look(self, option: tuple[int, int]) -> None:
        number, key = option
        vault = self.processes[number].vault
        vault.opened = True
        vault.read = (key, self.shown[key], vault.activation, None)

    def can_fetch(self) -> list[Any]:
        return [i for i, p in enumerate(self.processes) if p.vault.read is not None]

    def fetch(self, number: int) -> None:
        """It reads the vault."""
        vault = self.processes[number].vault
        assert vault.read is not None
        key, before, activation, _ = vault.read
        value = self.value(vault, key)
        vault.read = None if value is None else (key, before, activation, value)

    def can_finish(self) -> list[Any]:
        return [i for i, p in enumerate(self.processes) if p.vault.read is not None and p.vault.read[3] is not None]

    def finish(self, number: int) -> None:
        """It checks the page again, and returns its result."""
        process = self.processes[number]
        vault = process.vault
        assert vault.read is not None
        key, before, activation, value = vault.read
        vault.read = None
        still = self._serves(process) and vault.activation == activation
        if value is not None and (still or not self.scope.checks):
            self.show(key, value, before, f"vault {vault.name}")

    def can_read(self) -> list[Any]:
        return [(i, key) for i, p in enumerate(self.processes) if self._serves(p) for key in range(self.scope.keys)]

    def read(self, option: tuple[int, int]) -> None:
        """All steps of a read at once."""
        number, key = option
        vault = self.processes[number].vault
        value = self.value(vault, key)
        if value is not None:
            self.show(key, value, self.shown[key], f"vault {vault.name}")
