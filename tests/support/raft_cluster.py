"""A whole group in one thread: unmodified `Group`s on simulated processes, network and disks, with all checkers on.

What survives a crash is the node's disk: a `MemoryJournal` and the durable part of a `RegisterMachine`. Everything else
is created anew at each start. `raft_checkers.py` observes every turn of every node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from palisade.raftgroup.errors import MemberRemoved, NodeFailed
from palisade.raftgroup.group import Group
from palisade.raftgroup.group_config import GroupConfig
from palisade.raftgroup.log_retention import LogRetention
from palisade.raftgroup.membership import Member, MemberRole
from palisade.raftgroup.memory_journal import MemoryJournal
from palisade.raftgroup.timing import RaftTiming
from tests.support.raft_checkers import Checkers
from tests.support.raft_network import Network, SimPeers
from tests.support.register_machine import RegisterMachine
from tests.support.simulation import Process, Simulation


@dataclass(slots=True)
class Disk:
    """What survives a crash. `fsync_s`: how long a sync takes; `failing`: it raises instead. `removed`: the removal of
    its member was requested."""

    journal: MemoryJournal
    machine: RegisterMachine
    fsync_s: float = 0.0005
    failing: bool = False
    removed: bool = False


@dataclass(slots=True)
class Node:
    """One member: its disk, and, while it runs, its process."""

    id: str
    disk: Disk
    rate: float = 1.0
    starts: int = 0
    process: Process | None = None
    group: Group | None = None
    peers: SimPeers | None = None
    founders: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def runs(self) -> bool:
        return self.process is not None and not self.process.dead

    @property
    def healthy(self) -> bool:
        """Runs, is not paused, and has not stopped itself."""
        return self.runs and not self.process.paused and not self.failed

    @property
    def failed(self) -> bool:
        failed = self.group.failed if self.group else None
        return failed is not None and failed.done()


class Cluster:
    """`members` are founded together and started. Times are the simulation's."""

    def __init__(
        self,
        seed: int,
        members: int = 3,
        *,
        timing: RaftTiming | None = None,
        retention: LogRetention | None = None,
        drift: float = 0.0,
    ) -> None:
        self.simulation = Simulation(seed)
        self.random = self.simulation.random
        self.network = Network(self.simulation)
        self.timing = timing or RaftTiming()
        self.retention = retention or LogRetention()
        self.checkers = Checkers(self)
        self.nodes: dict[str, Node] = {}
        self.tolerates_failed_nodes = False
        self.simulation.after_turn = self._turned
        self._by_process: dict[Process, Node] = {}
        ids = [f"n{number}" for number in range(1, members + 1)]
        founders = {member: {"peer": member} for member in ids}
        for member in ids:
            self.add_node(member, founders, rate=1.0 + drift * (self.random.random() - 0.5))
        self._write_behind()

    def _write_behind(self) -> None:
        """The state machines are flushed to their disks now and then."""
        for node in self.nodes.values():
            if node.runs and self.random.random() < 0.5:
                node.disk.machine.persist()
        self.simulation.after(0.4, self._write_behind)

    # Nodes.

    def add_node(self, member: str, founders: Mapping[str, Mapping[str, str]] | None = None, rate: float = 1.0) -> Node:
        node = Node(member, self._new_disk(member), rate=rate, founders=founders or {})
        self.nodes[member] = node
        self.start(member)
        return node

    def _new_disk(self, member: str) -> Disk:
        disk = Disk(MemoryJournal(), RegisterMachine(self.checkers.applied_by(member)))
        disk.journal = MemoryJournal(lambda: self._before_sync(disk))
        return disk

    async def _before_sync(self, disk: Disk) -> None:
        await asyncio.sleep(disk.fsync_s * (0.5 + self.random.random()))
        if disk.failing:
            raise OSError("the disk is broken")

    def start(self, member: str) -> None:
        node = self.nodes[member]
        node.starts += 1
        process = self.simulation.process(member, rate=node.rate, offset_s=1000.0 * self.random.random())
        node.process = process
        self._by_process[process] = node
        node.peers = SimPeers(self.network, member, process)
        node.group = None
        process.start(self._boot(node, process, node.peers))

    async def _boot(self, node: Node, process: Process, peers: SimPeers) -> None:
        config = GroupConfig(
            "test", node.id, {"peer": node.id}, node.founders, timing=self.timing, retention=self.retention
        )
        group = Group(
            config,
            journal=node.disk.journal,
            machine=node.disk.machine,
            peers=peers,
            clock=process,
            random=Random(f"{self.simulation.seed} {node.id} {node.starts}"),
        )
        node.group = group
        await group.start()
        group.failed.add_done_callback(lambda failed: self._failed(node, failed))

    def _failed(self, node: Node, failed: asyncio.Future[None]) -> None:
        error = failed.exception()
        if isinstance(error, MemberRemoved):
            return
        if not self.tolerates_failed_nodes and not self.checkers.violations:
            raise AssertionError(f"{node.id} stopped itself: {error!r}") from error

    def crash(self, member: str, *, power: bool = True) -> None:
        """Kill -9, or a loss of power: no unsynced data survive either."""
        node = self.nodes[member]
        if not node.runs:
            return
        node.process.kill()
        node.peers.vanish(within_s=2.0 if power else 0.01)
        node.disk.journal.crash()
        node.disk.machine.crash()

    def wipe(self, member: str) -> None:
        """The disk is lost; this does not start the node again."""
        self.crash(member)
        node = self.nodes[member]
        node.disk = self._new_disk(member)
        node.founders = {}

    def restart(self, member: str) -> None:
        self.crash(member)
        self.start(member)

    def member(self, node: Node, *, becomes_voter: bool = False) -> Member:
        return Member(node.id, MemberRole.LEARNER, node.group.incarnation, {"peer": node.id}, becomes_voter)

    # Time.

    def run_for(self, duration_s: float) -> None:
        self.simulation.run_for(duration_s)

    def run_until(self, condition: Callable[[], bool], within_s: float = 20.0) -> None:
        self.simulation.run_until(condition, within_s=within_s)

    def call(self, member: str, coroutine: Any, within_s: float = 30.0) -> Any:
        """Run a coroutine on a node and return what it returns."""
        return self.simulation.run(self.nodes[member].process, coroutine, within_s=within_s)

    def _turned(self, process: Process) -> None:
        node = self._by_process[process]
        if node.group is not None and (not node.failed or self.checkers.violations):
            self.checkers.turned(node)

    # State.

    @property
    def healthy(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.healthy and node.group is not None]

    def leaders(self) -> list[Node]:
        return [node for node in self.healthy if node.group.leads]

    def leader(self, within_s: float = 20.0) -> Node:
        """The leader that a majority follows; waits for it."""
        self.run_until(lambda: self._followed_leader() is not None, within_s)
        leader = self._followed_leader()
        if leader is None:
            raise NodeFailed("unreachable")
        return leader

    def _followed_leader(self) -> Node | None:
        for node in self.leaders():
            followers = [other for other in self.healthy if other.group.leader == node.id]
            if len(followers) * 2 > len(node.group.members.voters):
                return node
        return None

    def followers(self) -> list[Node]:
        leader = self.leader()
        return [node for node in self.healthy if node is not leader]

    def put(self, member: str, key: str, value: str, timeout_s: float = 5.0) -> Any:
        """A write through that member, to its end."""
        return self.call(member, self.checkers.write(self.nodes[member], key, value, timeout_s))

    def read(self, member: str, key: str, timeout_s: float = 5.0) -> str | None:
        """A linearizable read on that member."""
        return self.call(member, self.checkers.read(self.nodes[member], key, timeout_s))

    def converged(self) -> bool:
        """Every running node has applied the same entries."""
        applied = {node.disk.machine.applied for node in self.healthy}
        return len(applied) == 1 and len(self.healthy) == len([node for node in self.nodes.values() if node.runs])


def settled(cluster: Cluster) -> Node:
    """A leader, a first write, and every node at the same index; returns the leader."""
    leader = cluster.leader()
    cluster.put(leader.id, "a", "first")
    cluster.run_until(cluster.converged)
    return leader
