"""Nodes of a cluster with their real fencing, in simulated time: only the surroundings are simulated.

Real: the store, `MemberFencing` (strict log, responses, lease server, registry, lease client, gate, leader connection),
`KeyValues`, the vault over memory with its fence page, recovery and the flush batches of a member's vault,
`VaultReader`. Simulated: the log of the group and its leader, the network, clocks (within the bound), disks, pauses and
kills. A walk is a function of its seed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

from palisade.metastore.changes import AppliedEntry, StoreListener
from palisade.metastore.command_codec import decode_result, encode_command
from palisade.metastore.limits import Limits
from palisade.metastore.memory_store import MemoryStore
from palisade.metastore.ordered_map import Table
from palisade.metastore.requests import FoundCluster
from palisade.metastore.state_machine import MetaStore
from palisade.node.fencing.fencing_component import HolderNode
from palisade.node.fencing.member_fencing import MemberFencing, strict_answers
from palisade.raftgroup.errors import OutcomeUnknown
from palisade.raftgroup.membership import Member, MemberRole, Membership
from palisade.raftgroup.proposals import Applied
from palisade.recovery.catchup import Difference
from palisade.recovery.flush_follower import FlushFollower
from palisade.recovery.follower import Follower
from palisade.recovery.ports import NoResources
from palisade.recovery.recovery import Settings
from palisade.recovery.recovery import World as RecoveryWorld
from palisade.recovery.store_source import StoreSource
from palisade.service.key_values import KeyValues
from palisade.service.local_source import _unavailable
from palisade.vault.fence_page import FENCE_BYTES, FencePage
from palisade.vault.memory_tables import MemoryBackend
from palisade.vault.vault import Vault
from tests.support.meta_driver import opened_again
from tests.support.simulation import Process, Simulation
from tests.support.wired_parts import (
    BOOT,
    DEADLINE_S,
    QUORUM_LEASE_S,
    TIMING,
    VOTES_AFTER_S,
    Active,
    Entry,
    SimulatedGroup,
    SimulatedLink,
    Visit,
    Wire,
)


class Node:
    """One start of a node; `backend` and `buffer` are its disk and the memory that readers share."""

    def __init__(
        self, cluster: Cluster, name: str, process: Process, backend: MemoryBackend, buffer: bytearray
    ) -> None:
        self.cluster, self.name, self.process = cluster, name, process
        self.backend, self.buffer = backend, buffer
        self.applied = 0
        self.knows_leader: str | None = None
        self.proposals: list[tuple[Sequence[bytes], Callable[[Any], None]]] = []
        self.commit_due = False
        self.dirty: set[bytes] = set()
        self.tables = MemoryStore(name)
        before = MetaStore(self.tables, Limits())
        self.incarnation = 0
        self.stopped = False
        for entry in cluster.log[: cluster.durable.get(name, 0)]:
            self.applied = entry.index
            before.apply(entry.index, entry.term, entry.stamp, entry.commands)
        self.store = MetaStore(opened_again(self.tables), Limits())
        self.group = SimulatedGroup(cluster, name)
        strict = strict_answers(self.store, process.now, lambda: self.fencing)
        self.key_values = KeyValues(self.group, self.store, deadline_s=DEADLINE_S, strict=strict)  # type: ignore[arg-type]
        clock: Any = SimpleNamespace(now=process.now, sleep=asyncio.sleep)
        self.fencing = MemberFencing(
            HolderNode(name, lambda: "vault", lambda: self.incarnation),
            self.key_values,
            strict,
            self.group,  # type: ignore[arg-type]
            clock,
            TIMING,
        )
        active: Any = Active(cluster)
        self.fencing.active = self.fencing.grantor._is_active = active
        self.fencing.grantor._is_active = active.is_active
        self.fencing.registry._active = active
        self.part = self.fencing.part
        page = FencePage(buffer, BOOT, first_sequence=cluster.starts << 32)
        self.vault = Vault(backend, page)
        self.part.opened(self.vault)
        assert self.part.holder is not None
        self.holder = self.part.holder
        self.gate: Any = self.holder.gate
        if name in cluster.followers:
            self.gate._log = None
        source = StoreSource(
            name, self.store, barrier=self._barrier, propose=self._propose, others=partial(asyncio.sleep, 0),
            news=lambda after: asyncio.sleep(0.03),
        )  # fmt: skip
        self.beside = FlushFollower(self.store, source)
        self.store.listen(Dirty(self.dirty), self.fencing.grantor, self.beside)
        applied = None if name in cluster.followers else self.beside
        world = RecoveryWorld(self.vault, source, Silent(), NoResources(), clock, Difference(), self.gate, applied)
        self.follower = Follower(world, Settings(name, batch_revisions=20), on_recovering=self.part.recovering)
        self.clock = clock

    async def _barrier(self) -> None:
        with _unavailable():
            await self.group.read_barrier(timeout_s=0.5)

    async def _propose(self, command: Any) -> Any:
        with _unavailable():
            applied = await self.group.propose(encode_command(command), timeout_s=0.5)
        return decode_result(applied.result)

    def start(self) -> None:
        link = SimulatedLink(self.holder, self.part._route, self.name, self.fencing.grantor)
        link.cluster = self.cluster
        self.part.link = link
        start = self.process.start
        self.part._linked = start(link.run())
        self.cluster.watched += [(self, start(self._vault())), (self, start(self.part.run()))]
        self.cluster.watched.append((self, start(self.fencing.registry.run())))

    async def _vault(self) -> None:
        await self.follower.recover()
        self.incarnation = self.cluster.let_in(self.name)
        while True:
            following = asyncio.ensure_future(self._follow())
            self.recover_now = asyncio.Event()
            waiting = asyncio.ensure_future(self.recover_now.wait())
            await asyncio.wait({following, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                following.result()
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await self.follower.recover(running=True)

    async def _follow(self) -> None:
        if self.name in self.cluster.followers:
            await self.follower.follow()
        else:
            slice_s = self.cluster.random.choice((0.0, 0.01))
            await self.beside.follow(
                self.follower, self.vault, self.clock, lambda: False, partial(asyncio.sleep, slice_s), self.gate
            )

    def flush(self) -> None:
        """The store has been flushed: the vault may apply the batch."""
        keys = sorted(self.dirty)
        self.dirty.clear()
        self.tables.owner.saving()
        self.tables.owner.flushed(keys, {key: self.tables.get(Table.KEY, key) for key in keys})
        self.cluster.durable[self.name] = self.applied

    def apply(self, entry: Entry) -> None:
        if entry.index != self.applied + 1:
            return
        if entry.term > self.group.led_term > 0:
            self.cluster.step_down(self)
        self.applied = entry.index
        results = self.store.apply(entry.index, entry.term, entry.stamp, entry.commands)
        if entry.leader == self.name:
            for begin, count, done in entry.ends:
                done(Applied(entry.index, entry.term, results[begin : begin + count]))
            entry.ends = []
        self.cluster.note(self, entry)


class Dirty(StoreListener):
    """Collects the keys of the next flush."""

    def __init__(self, keys: set[bytes]) -> None:
        self._keys = keys

    def applied(self, changes: AppliedEntry) -> None:
        self._keys.update(changes.keys)


class Silent:
    """Listeners without effect."""

    async def start(self) -> None: ...

    async def revision(self, revision: Any) -> None: ...

    async def difference(self, revision: int, events: Any, last: bool) -> None: ...


class Cluster:
    """Three nodes. `followers`: nodes whose vaults apply every revision, with the gate of a node without a log."""

    def __init__(self, seed: int, *, calm: bool = False, node_class: type[Node] = Node) -> None:
        self.simulation = Simulation(seed)
        self.random: Random = self.simulation.random
        self.calm = calm
        self.names = ("n1", "n2", "n3")
        self.followers = {"n3"} if seed % 3 == 0 else set()
        self.slow = 0.02 if seed % 4 else 0.1
        self._node_class = node_class
        self.starts = 1
        self.log: list[Entry] = []
        self.durable: dict[str, int] = {}
        self.term = 0
        self.leader: str | None = None
        self.votes_at = 0.0
        self.cut: set[str] = set()
        self.visits: dict[Visit, None] = {}
        self.watched: list[tuple[Node, asyncio.Task[Any]]] = []
        self.last_incarnation = dict.fromkeys(self.names, 0)
        self.incarnations = dict.fromkeys(self.names, 0)
        self.on_applied: Callable[[Node, Entry], None] = lambda node, entry: None
        self.on_booted: Callable[[Node], None] = lambda node: None
        addresses = {name: {"stream": name} for name in self.names}
        self.members = Membership(tuple(Member(n, MemberRole.VOTER, "sim", addresses[n]) for n in self.names))
        self.nodes: dict[str, Node] = {}
        for name in self.names:
            self._boot(name, MemoryBackend(), bytearray(FENCE_BYTES))
        self.elect("n1", first=[encode_command(FoundCluster("id-1"))])
        self._beat()

    @property
    def now(self) -> float:
        return self.simulation.now

    @property
    def committed(self) -> int:
        return len(self.log)

    def latency(self) -> float:
        chance = self.random.random()
        return 0.0005 + (0.002 * chance if self.calm or chance < 0.8 else self.slow * self.random.random())

    def is_cut(self, a: str, b: str) -> bool:
        return a != b and (a in self.cut or b in self.cut)

    def majority_reaches(self, name: str) -> bool:
        leader = self.leader
        return leader is not None and not self.is_cut(name, leader) and self.nodes[leader].group.try_read_barrier()

    # Nodes

    def _boot(self, name: str, backend: MemoryBackend, buffer: bytearray) -> None:
        rate = 1.0 if self.calm else self.random.choice((0.991, 1.0, 1.009))
        process = self.simulation.process(name, rate=rate, offset_s=1000.0)
        before = self.nodes.get(name)
        if before is not None:
            process._offset_s = before.process.now() - rate * self.now
        self.starts += 1
        node = self._node_class(self, name, process, backend, buffer)
        self.nodes[name] = node
        process.call(node.start)
        process.call(self._pull, node)
        self.on_booted(node)

    def let_in(self, name: str) -> int:
        self.last_incarnation[name] += 1
        self.incarnations[name] = self.last_incarnation[name]
        return self.last_incarnation[name]

    def restart(self, name: str) -> None:
        node = self.nodes[name]
        node.process.kill()
        if self.leader == name:
            self.leader = None
        for visit in list(self.visits):
            if name in (visit._there.name, visit.connection.holder.node if visit.connection.holder else name):
                visit.close()
        self._boot(name, node.backend, node.buffer)

    def _pull(self, node: Node) -> None:
        """Committed entries arrive at a node some time, in order."""
        if node.process.dead:
            return
        if not (self.leader is None or self.is_cut(node.name, self.leader)) or node.name == self.leader:
            ahead = self.log[node.applied : node.applied + 3]
            for entry in ahead:
                node.apply(entry)
            if self.leader is not None:
                node.knows_leader = self.leader
        node.process.loop.call_later(self.latency(), self._pull, node)

    # The group

    def _beat(self) -> None:
        leader = self.leader
        if leader is not None and not self.nodes[leader].process.paused and leader not in self.cut:
            node = self.nodes[leader]
            node.group.lease_until = node.process.now() + QUORUM_LEASE_S
            self.votes_at = self.now + VOTES_AFTER_S
        self.simulation.after(0.05, self._beat)

    def may_lead(self, name: str) -> bool:
        node = self.nodes[name]
        return not (node.process.paused or node.process.dead or name in self.cut or node.stopped)

    def elect(self, name: str, first: Sequence[bytes] = ()) -> None:
        if self.now < self.votes_at or not self.may_lead(name) or name == self.leader:
            return
        before = self.leader
        self.term += 1
        if before is not None:
            old = self.nodes[before]
            old.process.loop.call_later(self.latency() * 5, self._unseat, old, self.term)
            if old.proposals and self.random.random() < 0.5:
                self._append(old, self.nodes[name], self.term)
        self.leader = name
        node = self.nodes[name]
        node.process.call(self._lead, node, self.term, first)

    def _unseat(self, node: Node, term: int) -> None:
        if node.group.led_term and node.group.led_term < term:
            self.step_down(node)

    def step_down(self, node: Node) -> None:
        node.group.led_term = 0
        node.group.lease_until = 0.0
        node.knows_leader = None
        if self.leader == node.name:
            self.leader = None
        node.fencing.led(False, self.term)
        for _, done in node.proposals:
            done(OutcomeUnknown("the leader has changed"))
        node.proposals = []

    def _lead(self, node: Node, term: int, first: Sequence[bytes]) -> None:
        if self.term != term or self.leader != node.name:
            return
        for entry in self.log[node.applied :]:
            node.apply(entry)
        node.store.lead(node.process.now(), 0)
        self.log.append(Entry(len(self.log) + 1, term, node.store.stamp(node.process.now(), 0), first, node.name))
        node.apply(self.log[-1])
        node.knows_leader = node.name
        node.group.led_term = term
        node.fencing.led(True, term)

    def propose(self, node: Node, commands: Sequence[bytes], done: Callable[[Any], None], timeout_s: float) -> None:
        """At the leader, or forwarded to it; exactly one end, in the process that asked."""
        ended = False

        def end(outcome: Any) -> None:
            nonlocal ended
            if not ended:
                ended = True
                done(outcome)

        node.process.loop.call_later(timeout_s, end, OutcomeUnknown("the deadline has passed"))
        leader = node.knows_leader
        if leader is None:
            return
        to = self.nodes[leader]
        if to is node:
            node.process.call(self._take, to, commands, end)
            return
        back = Wire(self, to.name, node.name, lambda outcome: node.process.call(end, outcome))
        there = Wire(self, node.name, to.name, lambda message: to.process.call(self._take, to, message, back.send))
        there.send(commands)

    def _take(self, node: Node, commands: Sequence[bytes], done: Callable[[Any], None]) -> None:
        if not node.group.leads:
            return
        node.proposals.append((commands, done))
        if not node.commit_due:
            node.commit_due = True
            wait_s = self.latency() * (1 if self.calm else self.random.choice((1, 1, 4)))
            node.process.loop.call_later(wait_s, self._commit, node)

    def _commit(self, node: Node) -> None:
        node.commit_due = False
        if not node.group.leads or self.leader != node.name:
            return
        if node.name in self.cut:
            node.commit_due = True
            node.process.loop.call_later(0.02, self._commit, node)
            return
        entry = self._append(node, node, node.group.led_term)
        if entry is not None:
            node.apply(entry)

    def _append(self, node: Node, leader: Node, term: int) -> Entry | None:
        proposals, node.proposals = node.proposals, []
        if not proposals:
            return None
        commands = [command for some, _ in proposals for command in some]
        stamp = node.store.stamp(node.process.now(), 0)
        entry = Entry(len(self.log) + 1, term if leader is node else term - 1, stamp, commands, node.name)
        begin = 0
        for some, done in proposals:
            entry.ends.append((begin, len(some), done))
            begin += len(some)
        self.log.append(entry)
        return entry

    def note(self, node: Node, entry: Entry) -> None:
        self.on_applied(node, entry)

    # The end

    def check(self) -> None:
        """No component has failed unexpectedly."""
        for node, task in self.watched:
            if task.done() and not task.cancelled() and not node.process.dead and task.exception() is not None:
                raise AssertionError(f"seed {self.simulation.seed}: {node.name} failed") from task.exception()
        for node in self.nodes.values():
            if node.group.failed:
                raise AssertionError(f"seed {self.simulation.seed}: {node.name} failed") from node.group.failed[0]
