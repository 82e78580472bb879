"""A small cluster around the production machines of `fencing/`, in which any event may happen at any moment.

Few registers: strict revision r writes the value r. Leaders, holders, vaults and readers move one step at a time, in
any order; messages are lost, repeated, delayed and reordered; processes are killed, lose power, return, or are replaced
by another one with an empty vault under the same name while the first may still run. Clocks have their own rates.

The property: once a value of a key was returned to any reader, or its write was acknowledged, no reader gets an older
one (registers of rising values are linearizable exactly if this holds). `Stale` reports violations.

The surroundings of the machines (vault, fence page, reader, sessions) are here, as short as possible, and as documented
in those packages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

from palisade.fencing.messages import HolderId, HolderPhase, Release
from palisade.fencing.registry import Registration, Registry, registration_of
from tests.support.fencing_holders import HolderMoves
from tests.support.fencing_parts import Leader, Message, Scope

HELD_MAX = 2
Step = tuple[str, Any]
"""A move and its option."""


class World(HolderMoves):
    """`options` and `do` are the whole interface: the possible moves, and their execution."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope, shown=[0] * scope.keys)
        scope = self.scope
        for number in range(scope.holders):
            name = f"n{number}"
            vault = self.scope.vault(f"{name}-v0")
            self._new_process(name, vault)
            timing = self.processes[-1].running._timing
            self.registered[name] = Registration(name, vault.name, timing.fence_s, proceed_s=timing.proceed_s())
        self.elect(None)

    # Moves: each has its options, and its effect for one of them

    def options(self, move: str) -> list[Any]:
        found: list[Any] = getattr(self, f"can_{move}")()
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

    def can_tick(self) -> list[Any]:
        return [None] if self.ticks < self.scope.ticks else []

    def tick(self, _: None) -> None:
        self.ticks += 1
        self.now = self.ticks * self.scope.tick_s

    # Consensus

    @property
    def top(self) -> Leader:
        return self.leaders[-1]

    def can_quorum(self) -> list[Any]:
        return [None] if self.top.quorum_until < self.now + self.scope.quorum_s else []

    def quorum(self, _: None) -> None:
        """A majority still follows the leader."""
        self.top.quorum_until = self.now + self.scope.quorum_s

    def can_elect(self) -> list[Any]:
        allowed = len(self.leaders) < self.scope.terms and self.now >= self.top.quorum_until
        return [None] if allowed else []

    def elect(self, _: None) -> None:
        scope, term = self.scope, len(self.leaders) + 1
        releases = scope.releases(scope.timing)
        if scope.registry is not Registry:
            releases._registry = scope.registry(scope.timing)
        leader = Leader(term, releases, 7.0, scope.leader_rates[term % len(scope.leader_rates)])
        leader.quorum_until = self.now + scope.quorum_s
        releases.begin_term(term, leader.clock(self.now), self.registered.values(), self.lm)
        self.leaders.append(leader)

    def can_commit(self) -> list[Any]:
        return [None] if self.lm < self.scope.revisions else []

    def commit(self, _: None) -> None:
        """A majority has it. No node has learned that yet."""
        self.lm += 1

    def can_learn(self) -> list[Any]:
        return [None] if self.top.releases.lm < self.lm else []

    def learn(self, _: None) -> None:
        """The leader learns that it is committed."""
        releases = self.top.releases
        strict = [r for r in range(releases.lm + 1, self.lm + 1) if r not in self.scope.eventual]
        span = (strict[0], strict[-1]) if strict else None
        releases.committed(self.lm, self.top.clock(self.now), span)

    def can_depose(self) -> list[Any]:
        return [number for number, leader in enumerate(self.leaders[:-1]) if leader.releases.leads]

    def depose(self, number: int) -> None:
        self.leaders[number].releases.end_term()

    # The leader's duties, which each leader believes to have

    def can_advance(self) -> list[Any]:
        return [number for number, leader in enumerate(self.leaders) if leader.releases.waiting]

    def advance(self, number: int) -> None:
        """Writes that wait for the release are acknowledged."""
        leader = self.leaders[number]
        released = leader.releases.advance(leader.clock(self.now))
        if released is not None:
            self.shown = [max(value, self.latest(key, released)) for key, value in enumerate(self.shown)]

    def can_answer(self) -> list[Any]:
        return [
            (number, key)
            for number, leader in enumerate(self.leaders)
            if self.now < leader.quorum_until and leader.releases.leads
            for key in range(self.scope.keys)
            if self.scope.answers_at_rr or leader.releases.visible(self.latest(key, leader.releases.lm))
        ]

    def answer(self, option: tuple[int, int]) -> None:
        """A linearizable read at the leader."""
        number, key = option
        leader = self.leaders[number]
        releases = leader.releases
        upto = releases.lm
        if self.scope.answers_at_rr:
            if releases.rr is None:
                return
            upto = releases.rr
        self.show(key, self.latest(key, upto), self.shown[key], f"leader of term {leader.term}")

    def can_stage(self) -> list[Any]:
        return [
            (number, process)
            for number, leader in enumerate(self.leaders)
            for process, session in leader.sessions.items()
            if session.lacking(leader.releases.lm, leader.releases.rr) is not None
        ]

    def stage(self, option: tuple[int, int]) -> None:
        number, process = option
        stage = self.leaders[number].next_stage(process, self.scope.eventual)
        if stage is not None:
            self._send(("H", self._node(number), process, stage))

    def can_release(self) -> list[Any]:
        return [
            (number, process)
            for number, leader in enumerate(self.leaders)
            for process in leader.sessions
            if (leader.releases.rr or 0) > self.processes[process].vault.released
        ]

    def release(self, option: tuple[int, int]) -> None:
        number, process = option
        leader = self.leaders[number]
        self._send(("H", self._node(number), process, Release(leader.term, leader.releases.rr or 0)))

    def can_register(self) -> list[Any]:
        return list(self.top.wanted)

    def register(self, process: int) -> None:
        """The leader replicates a record, if it may."""
        leader = self.top
        hello = leader.wanted.pop(process)
        node, now = hello.holder.node, leader.clock(self.now)
        registry = leader.releases.registry
        if self.scope.checks_vault and not registry.leave(node, now).now:
            return
        self.registered[node] = registration_of(hello)
        registry.register(self.registered[node], now)

    def can_unregister(self) -> list[Any]:
        return [node for node in self.registered if self.top.releases.registry.of(node) is not None]

    def unregister(self, node: str) -> None:
        leader = self.top
        registry = leader.releases.registry
        if registry.leave(node, leader.clock(self.now)).now:
            del self.registered[node]
            registry.unregister(node, leader.clock(self.now))
        else:
            registry.stay(node)

    # The network

    def can_deliver(self) -> list[Any]:
        return self.messages

    def deliver(self, message: Message) -> None:
        self.messages.remove(message)
        self.repeat(message)

    def can_repeat(self) -> list[Any]:
        return self.messages

    def repeat(self, message: Message) -> None:
        """It arrives, and will arrive again."""
        to, leader, process, what = message
        if to == "L":
            self._at_leader(leader, process, what)
        elif self.processes[process].holder is not None:
            at, marks_first = self._clock_of(process), self.scope.marks_first
            self._answer(process, self.processes[process].receive(what, at, marks_first=marks_first))

    def can_lose(self) -> list[Any]:
        return self.messages

    def lose(self, message: Message) -> None:
        self.messages.remove(message)

    def can_hold(self) -> list[Any]:
        return self.messages if len(self.held) < HELD_MAX else []

    def hold(self, message: Message) -> None:
        """It is delayed, while others overtake it."""
        self.messages.remove(message)
        self.held.append(message)

    def can_arrive(self) -> list[Any]:
        return self.held

    def arrive(self, message: Message) -> None:
        self.held.remove(message)
        self.repeat(message)

    def _node(self, number: int) -> int:
        """The node of the leader with that number."""
        return number % self.scope.leader_nodes

    def _at_leader(self, node: int, process: int, sent: tuple[HolderId, Any]) -> None:
        """It is read by the leader of that moment."""
        leader = next(self.leaders[n] for n in reversed(range(len(self.leaders))) if self._node(n) == node)
        if leader.releases.leads:
            live = self.now < leader.quorum_until or not self.scope.asks_quorum
            answer = leader.receive(process, *sent, leader.clock(self.now), quorum_lease=live)
            if answer is not None:
                self._send(("H", node, process, answer))

    # Calm periods

    def can_calm(self) -> list[Any]:
        return [number for number, leader in enumerate(self.leaders) if leader.releases.leads]

    def calm(self, number: int) -> None:
        """All holders are connected with this leader, and follow its feed. No message is lost, every due step is
        executed, hardly any time passes: until every change is served everywhere, or ten times around."""
        leader = self.leaders[number]
        if leader is self.top:
            self.quorum(None)
        for _ in range(10):
            self.now += 1e-6
            if leader is self.top and self.can_learn():
                self.learn(None)
            for process in self._alive(lambda h, p: h.state is not HolderPhase.STOPPED):
                self._calm_holder(process, number)
            for move in ("register", "stage", "advance", "release"):
                for option in self.options(move):
                    self.do(move, option)
            while self.messages:
                self.deliver(self.messages[0])
            if self.is_calm():
                return

    def _calm_holder(self, number: int, leader: int) -> None:
        process = self.processes[number]
        holder = process.running
        node = self._node(leader)
        if number not in self.leaders[leader].sessions or process.leader != node:
            self.hello((number, node))
        while process.vault.lv < self.leaders[leader].releases.lm and self._may_apply(holder, process.vault):
            self.apply(number)
        while process.queue:
            self.mark(number)
        if holder.wants_join:
            self.join(number)
        if holder.wants_recovery(self._clock_of(number)):
            self.listen(number)
        self.renew(number)
        self.activate(number)

    def is_calm(self) -> bool:
        """Every change is served everywhere."""
        return self.top.releases.rr == self.lm and all(
            self._serves(p) and self.value(p.vault, key) == self.latest(key, self.lm)
            for p in self.processes
            if p.holder is not None
            for key in range(self.scope.keys)
        )

    # Several steps as one, so that a walk gets further

    def can_probe(self) -> list[Any]:
        return [None]

    def probe(self, _: None) -> None:
        """A change, if there is one left; all leaders release the permitted ones; every reader reads."""
        for move in ("commit", "learn"):
            for option in self.options(move):
                self.do(move, option)
        for move in ("advance", "answer", "read"):
            for option in self.options(move):
                self.do(move, option)

    def can_reboot(self) -> list[Any]:
        return self.can_kill()

    def reboot(self, number: int) -> None:
        self.kill(number)
        self.start(number)
        self.hello((number, self._node(len(self.leaders) - 1)))

    def can_succeed(self) -> list[Any]:
        enough = self.top.quorum_until <= self.scope.ticks * self.scope.tick_s
        return [None] if enough and len(self.leaders) < self.scope.terms else []

    def succeed(self, _: None) -> None:
        """The leader is unreachable until another one is elected."""
        while not self.can_elect():
            self.tick(None)
        self.elect(None)
