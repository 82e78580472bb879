"""The wiring of fencing under simulated time: the grantor of a leader and the holders of several nodes, each in a
process with a clock of its own, over vaults in memory; a network that delays and breaks; pauses; readers and a checker.

Everything but the sockets is what a node runs: `node/fencing`, `fencing`, `vault`, the replay of `recovery`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import msgpack

from fencing.release import Registration
from fencing.timing import Timing
from metastore.codec import encode_command
from metastore.limits import Limits
from metastore.machine import MetaStore
from metastore.memory_map import MemoryMap
from metastore.requests import Put
from node.fencing.fenced_reads import FencedReads
from node.fencing.gate import VaultGate
from node.fencing.grantor import Connection, Grantor
from node.fencing.holder import VaultHolder
from node.fencing.region_book import regions_of
from node.fencing.wire import pack, unpack
from recovery.replay import tell_and_apply
from service.release_waiters import Released
from service.strict_changes import StrictLog
from tests.support.fake_group import FakeClock, FakeGroup
from tests.support.fence_history import Told, violations
from tests.support.simulation import Process, Simulation
from vault.fence_page import FENCE_BYTES, FencePage
from vault.memory_backend import MemoryBackend
from vault.regions import Mode, Policy, Region, pack_region, region_key
from vault.vault import Vault

KEY = b"s/x"
BOOT = bytes(8)


class NoListeners:
    async def start(self) -> None: ...
    async def revision(self, revision: Any) -> None: ...
    async def difference(self, revision: int, events: Any, last: bool) -> None: ...


class LoopClock:
    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Node:
    """One holder."""

    def __init__(self, world: World, name: str, rate: float) -> None:
        self.world, self.name = world, name
        self.process: Process = world.simulation.process(name, rate=rate)
        self.vault = Vault(MemoryBackend(), FencePage(bytearray(FENCE_BYTES), BOOT))
        self.holder = VaultHolder(name, name, self.vault, world.timing, self.process.now, lambda _: None)
        self.gate = VaultGate(self.holder, None)
        self.holder.gate = self.gate
        self.reads = FencedReads()
        self.reads.open(self.vault, self.holder.changed, self.process.now)
        self.line = 0
        """Which connection counts: what belongs to another one is lost."""
        self.process.start(self._run())
        self.process.start(self._follow())

    async def _run(self) -> None:
        self.holder.is_now(1)
        self.holder.recovering(False)
        while True:
            self.holder.settle()
            self.holder.renew_if_due()
            if self.holder.wants_recovery():
                self.holder.recovered(self.holder.begin_recovery())
            await asyncio.sleep(0.02)

    async def _follow(self) -> None:
        chance, store = self.world.chance, self.world.store
        clock = LoopClock(self.process.now)
        while True:
            await asyncio.sleep(chance.random() * 0.05)
            if self.vault.revision < store.revision:
                changes = store.feed.changes(self.vault.revision + 1, self.vault.revision + 20, 1 << 20)
                await tell_and_apply(self.vault, NoListeners(), clock, changes, gate=self.gate)

    def connect(self) -> None:
        """Over a network that keeps the order of a connection, and its own time."""
        world, self.line = self.world, self.line + 1
        line, due = self.line, {"there": 0.0, "back": 0.0}

        def carry(way: str, process: Process, deliver: Callable[..., None], message: Any) -> None:
            travelled = msgpack.unpackb(msgpack.packb(pack(message)))
            due[way] = max(due[way], world.simulation.now + world.delay())
            world.simulation.after(due[way] - world.simulation.now, lambda: process.call(arrive, deliver, travelled))

        def arrive(deliver: Callable[..., None], travelled: Any) -> None:
            if self.line == line:
                deliver(unpack(travelled))

        connection = Connection(lambda message: carry("back", self.process, self.holder.deliver, message), lambda: None)
        self.holder.disconnected()

        def to_leader(message: Any) -> None:
            carry("there", world.leader, lambda found: world.grantor.receive(connection, found), message)

        self.process.call(self.holder.connected, to_leader)

    def read(self) -> None:
        now = self.world.simulation.now
        shown = self.reads.at_once(KEY)
        if shown is None:
            self.world.not_told += 1
        else:
            value = int(shown.item.value) if shown.item is not None else 0
            self.world.reads.append(Told(now, now, value, self.name))


class World:
    """`delay_max_s`: of a message, one way."""

    def __init__(self, seed: int, nodes: int = 3, delay_max_s: float = 0.02) -> None:
        self.simulation, self.chance, self.timing = Simulation(seed), Random(seed), Timing()
        self.delay_max_s = delay_max_s
        self.store = MetaStore(MemoryMap(), Limits())
        self.leader = self.simulation.process("leader")
        self.group = FakeGroup(self.store, FakeClock(self.leader.now))
        self.log = StrictLog(self.store.bodies, lambda: regions_of(self.store), self.store.revision)
        self.released = Released(self.log, self.leader.now)
        self.quorum_lease = True
        self.faults: list[Exception] = []
        self.grantor = Grantor(
            self.log,
            self.timing,
            self.leader.now,
            lease_holds=lambda: self.quorum_lease,
            leader_address=lambda: None,
            is_active=lambda node, incarnation: True,
            on_released=self._release,
            on_failed=self.faults.append,
        )
        self.store.on_applied = self._applied
        self.reads: list[Told] = []
        self.answered: list[Told] = []
        self.not_told = self.value = 0
        self.nodes = [Node(self, f"n{number}", 1 + self.chance.uniform(-0.01, 0.01)) for number in range(nodes)]
        self.leader.call(self._begin)

    def _begin(self) -> None:
        lease_s, proceed_s = self.timing.fence_s, self.timing.proceed_s()
        self.grantor.begin_term(
            1, [Registration(node.name, node.name, lease_s, proceed_s=proceed_s) for node in self.nodes]
        )
        self._apply(Put(region_key("s"), pack_region(Region("s", b"s/", Mode.STRICT, Policy.FAIL_CLOSED))))

    def _applied(self, changed: Any, before: int) -> None:
        self.grantor.applied(self.log.applied(changed, before, self.store.revision))
        self.released.wake()

    def _release(self, revision: int) -> None:
        if self.log.release(revision):
            self.released.wake()

    def _apply(self, *commands: Any) -> None:
        self.group.apply([encode_command(command) for command in commands])

    def delay(self) -> float:
        return self.chance.random() ** 4 * self.delay_max_s

    def write(self) -> None:
        """In the process of the leader."""
        self.value += 1
        value, began = self.value, self.simulation.now
        self._apply(Put(KEY, b"%d" % value), Put(b"e", b"x"))

        def told(in_time: bool) -> None:
            if in_time:
                self.answered.append(Told(began, self.simulation.now, value, "the writer"))

        self.answer(told)

    def answer(self, told: Callable[[bool], None]) -> None:
        self.released.when(self.store.revision, self.released.now() + 20.0, told)

    def play(self, seconds: float) -> None:
        """Something happens every few milliseconds; now and then it is trouble."""
        simulation, chance = self.simulation, self.chance
        for node in self.nodes:
            node.connect()
        simulation.run_for(1.5)
        end = simulation.now + seconds
        while simulation.now < end:
            simulation.run_for(chance.random() * 0.01)
            self._trouble(chance.choice(self.nodes))
            if chance.random() < 0.2:
                self.leader.call(self.write)
            for node in self.nodes:
                if not node.process.paused:
                    node.process.call(node.read)
        for node in self.nodes:
            node.process.resume()
        self.quorum_lease = True
        simulation.run_for(8.0)

    def _trouble(self, node: Node) -> None:
        chance = self.chance
        if chance.random() < 0.004:
            node.process.pause()
            self.simulation.after(chance.random() * 5, node.process.resume)
        if chance.random() < 0.01:
            node.line += 1
            self.simulation.after(chance.random() * 2, node.connect)
        if chance.random() < 0.003:
            self._quorum(False)
            self.simulation.after(chance.random(), lambda: self._quorum(True))

    def _quorum(self, lease: bool) -> None:
        self.quorum_lease = lease

    def check(self) -> None:
        assert self.faults == []
        found = violations(self.reads, self.answered)
        assert not found, f"seed {self.simulation.seed}: {len(found)} of {len(self.reads)}: {found[:3]}"
