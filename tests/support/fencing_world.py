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

from typing import Any

from palisade.fencing.messages import HolderId, Release
from palisade.fencing.registry import Registration, Registry, registration_of
from tests.support.fencing_holders import HolderMoves, is_not_stopped, move, when
from tests.support.fencing_parts import Leader, Message, Scope

HELD_MAX = 2


def in_flight(world: HolderMoves) -> list[Message]:
    return world.messages


class World(HolderMoves):
    """`options` and `do`, or `take`, are the whole interface: the possible moves, and their execution."""

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

    @when(lambda world: world.ticks < world.scope.ticks)
    def tick(self, _: None) -> None:
        self.ticks += 1
        self.now = self.ticks * self.scope.tick_s

    # Consensus

    @when(lambda world: world.top.quorum_until < world.now + world.scope.quorum_s)
    def quorum(self, _: None) -> None:
        """A majority still follows the leader."""
        self.top.quorum_until = self.now + self.scope.quorum_s

    @when(lambda world: len(world.leaders) < world.scope.terms and world.now >= world.top.quorum_until)
    def elect(self, _: None) -> None:
        scope, term = self.scope, len(self.leaders) + 1
        releases = scope.releases(scope.timing)
        if scope.registry is not Registry:
            releases._registry = scope.registry(scope.timing)
        leader = Leader(term, releases, 7.0, scope.leader_rates[term % len(scope.leader_rates)])
        leader.quorum_until = self.now + scope.quorum_s
        releases.begin_term(term, leader.clock(self.now), self.registered.values(), self.lm)
        self.leaders.append(leader)

    @when(lambda world: world.lm < world.scope.revisions)
    def commit(self, _: None) -> None:
        """A majority has it. No node has learned that yet."""
        self.lm += 1

    @when(lambda world: world.top.releases.lm < world.lm)
    def learn(self, _: None) -> None:
        """The leader learns that it is committed."""
        releases = self.top.releases
        strict = [r for r in range(releases.lm + 1, self.lm + 1) if r not in self.scope.eventual]
        span = (strict[0], strict[-1]) if strict else None
        releases.committed(self.lm, self.top.clock(self.now), span)

    @move(lambda world: [number for number, leader in enumerate(world.leaders[:-1]) if leader.releases.leads])
    def depose(self, number: int) -> None:
        self.leaders[number].releases.end_term()

    # The leader's duties, which each leader believes to have

    @move(lambda world: [number for number, leader in enumerate(world.leaders) if leader.releases.waiting])
    def advance(self, number: int) -> None:
        """Writes that wait for the release are acknowledged."""
        leader = self.leaders[number]
        released = leader.releases.advance(leader.clock(self.now))
        if released is not None:
            self.shown = [max(value, self.latest(key, released)) for key, value in enumerate(self.shown)]

    @move(
        lambda world: [
            (number, key)
            for number, leader in enumerate(world.leaders)
            if world.now < leader.quorum_until and leader.releases.leads
            for key in range(world.scope.keys)
            if world.scope.answers_at_rr or leader.releases.visible(world.latest(key, leader.releases.lm))
        ]
    )
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

    @move(
        lambda world: [
            (number, process)
            for number, leader in enumerate(world.leaders)
            for process, session in leader.sessions.items()
            if session.lacking(leader.releases.lm, leader.releases.rr) is not None
        ]
    )
    def stage(self, option: tuple[int, int]) -> None:
        number, process = option
        stage = self.leaders[number].next_stage(process, self.scope.eventual)
        if stage is not None:
            self._send(("H", self._node(number), process, stage))

    @move(
        lambda world: [
            (number, process)
            for number, leader in enumerate(world.leaders)
            for process in leader.sessions
            if (leader.releases.rr or 0) > world.processes[process].vault.released
        ]
    )
    def release(self, option: tuple[int, int]) -> None:
        number, process = option
        leader = self.leaders[number]
        self._send(("H", self._node(number), process, Release(leader.term, leader.releases.rr or 0)))

    @move(lambda world: list(world.top.wanted))
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

    @move(lambda world: [node for node in world.registered if world.top.releases.registry.of(node) is not None])
    def unregister(self, node: str) -> None:
        leader = self.top
        registry = leader.releases.registry
        if registry.leave(node, leader.clock(self.now)).now:
            del self.registered[node]
            registry.unregister(node, leader.clock(self.now))
        else:
            registry.stay(node)

    # The network

    @move(in_flight)
    def deliver(self, message: Message) -> None:
        self.messages.remove(message)
        self.repeat(message)

    @move(in_flight)
    def repeat(self, message: Message) -> None:
        """It arrives, and will arrive again."""
        to, leader, process, what = message
        if to == "L":
            self._at_leader(leader, process, what)
        elif self.processes[process].holder is not None:
            at, marks_first = self._clock_of(process), self.scope.marks_first
            self._answer(process, self.processes[process].receive(what, at, marks_first=marks_first))

    @move(in_flight)
    def lose(self, message: Message) -> None:
        self.messages.remove(message)

    @move(lambda world: world.messages if len(world.held) < HELD_MAX else [])
    def hold(self, message: Message) -> None:
        """It is delayed, while others overtake it."""
        self.messages.remove(message)
        self.held.append(message)

    @move(lambda world: world.held)
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

    @move(lambda world: [number for number, leader in enumerate(world.leaders) if leader.releases.leads])
    def calm(self, number: int) -> None:
        """All holders are connected with this leader, and follow its feed. No message is lost, every due step is
        executed, hardly any time passes: until every change is served everywhere, or ten times around."""
        leader = self.leaders[number]
        if leader is self.top:
            self.quorum(None)
        for _ in range(10):
            self.now += 1e-6
            if leader is self.top and self.options("learn"):
                self.learn(None)
            for process in self.alive(is_not_stopped):
                self._calm_holder(process, number)
            self.do_all("register", "stage", "advance", "release")
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
        while process.vault.lv < self.leaders[leader].releases.lm and self.may_apply(holder, process.vault):
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
            self.serves(p) and self.value(p.vault, key) == self.latest(key, self.lm)
            for p in self.processes
            if p.holder is not None
            for key in range(self.scope.keys)
        )

    # Several steps as one, so that a walk gets further

    def do_all(self, *moves: str) -> None:
        for each in moves:
            for option in self.options(each):
                self.do(each, option)

    @when(lambda _: True)
    def probe(self, _: None) -> None:
        """A change, if there is one left; all leaders release the permitted ones; every reader reads."""
        self.do_all("commit", "learn", "advance", "answer", "read")

    @move(lambda world: world.alive())
    def reboot(self, number: int) -> None:
        self.kill(number)
        self.start(number)
        self.hello((number, self._node(len(self.leaders) - 1)))

    @when(
        lambda world: (
            world.top.quorum_until <= world.scope.ticks * world.scope.tick_s and len(world.leaders) < world.scope.terms
        )
    )
    def succeed(self, _: None) -> None:
        """The leader is unreachable until another one is elected."""
        while not self.options("elect"):
            self.tick(None)
        self.elect(None)
