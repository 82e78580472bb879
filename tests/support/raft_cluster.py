"""A whole group in one thread: unmodified `Group`s on simulated processes, network and disks, with all checkers on.

What survives a crash is the node's disk: a `MemoryJournal` and the durable part of a `RegisterMachine`. Everything else
is created anew at each start. `raft_checkers.py` observes every turn of every node.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any

from palisade.raftgroup.errors import MemberRemoved, NodeFailed, RaftError
from palisade.raftgroup.group import Group
from palisade.raftgroup.group_config import GroupConfig
from palisade.raftgroup.log_retention import LogRetention
from palisade.raftgroup.membership import Member, MemberRole
from palisade.raftgroup.memory_journal import MemoryJournal
from palisade.raftgroup.timing import RaftTiming
from tests.support import machine
from tests.support.machine import Machine, followed_leader, leaders_of
from tests.support.raft_checkers import Checkers
from tests.support.raft_network import Network, SimPeers
from tests.support.register_machine import RegisterMachine
from tests.support.simulation import Process, Simulation

JOIN_S_MAX = 2.0


class Disk(machine.Disk):
    """What survives a crash."""

    def __init__(self, chance: Random, state: RegisterMachine) -> None:
        super().__init__(chance)
        self.journal, self.machine = MemoryJournal(self.sync), state


class Node(Machine):
    """One member. `founders`: empty if it is added later; `joins`: it requests that itself."""

    joins = False

    def __init__(self, cluster: Cluster, member: str, founders: Mapping[str, Mapping[str, str]], rate: float) -> None:
        self.cluster, self.id, self.founders, self.rate = cluster, member, founders, rate
        self.peers: SimPeers | None = None
        self._new_disk()

    def _new_disk(self) -> None:
        self.disk = Disk(self.cluster.random, RegisterMachine(self.cluster.checkers.applied_by(self.id)))

    def start(self) -> None:
        cluster = self.cluster
        self.starts += 1
        self.process = cluster.simulation.process(self.id, rate=self.rate, offset_s=1000.0 * cluster.random.random())
        self.peers, self.group = SimPeers(cluster.network, self.id, self.process), None
        self.process.start(self._boot())

    async def _boot(self) -> None:
        cluster = self.cluster
        self.group = group = Group(
            GroupConfig(
                "test", self.id, {"peer": self.id}, self.founders, timing=cluster.timing, retention=cluster.retention
            ),
            journal=self.disk.journal,
            machine=self.disk.machine,
            peers=self.peers,
            clock=self.process,
            random=Random(f"{cluster.simulation.seed} {self.id} {self.starts}"),
        )
        await group.start()
        group.failed.add_done_callback(lambda failed: cluster.has_failed(self, failed))
        if self.joins:
            await self._join(group)

    async def _join(self, group: Group) -> None:
        """Until its own log contains it. It waits before each request: an outsider runs for a while."""
        wanted = self.cluster.member(self, becomes_voter=True)
        while not group.members.has_storage(self.id, group.incarnation):
            await asyncio.sleep(JOIN_S_MAX * self.cluster.random.random())
            for leader in self.cluster.leaders():
                leader.process.start(_tried(leader.group.add(wanted)))

    def kill(self, *, power: bool = False) -> None:
        """kill -9, or a loss of power: no unsynced data survive either."""
        if self.runs:
            self.process.kill()
            self.peers.vanish(within_s=2.0 if power else 0.01)
            self.disk.journal.crash()
            self.disk.machine.crash()

    def wipe(self) -> None:
        """The disk is lost; this does not start the node again."""
        self.kill(power=True)
        self.group, self.founders, self.joins = None, {}, self.cluster.rejoins
        self._new_disk()


async def _tried(change: Awaitable[object]) -> None:
    with contextlib.suppress(RaftError):
        await change


class Cluster:
    """`members` are founded together and started. `rejoins`: a member whose disk was lost requests to be added again.
    Times are the simulation's."""

    callers = ()
    """Clients run in the processes of the members."""

    def __init__(
        self,
        seed: int,
        members: int = 3,
        *,
        timing: RaftTiming | None = None,
        retention: LogRetention | None = None,
        drift: float = 0.0,
        rejoins: bool = False,
    ) -> None:
        self.simulation = Simulation(seed)
        self.random = self.simulation.random
        self.network = Network(self.simulation)
        self.timing = timing or RaftTiming()
        self.retention = retention or LogRetention()
        self.checkers = Checkers(self)
        self.coverage: dict[str, int] = {}
        self.nodes: dict[str, Node] = {}
        self.hosts, self.rejoins = self.nodes, rejoins
        self.tolerates_failed_nodes = False
        self.simulation.after_turn = self._turned
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
        node = self.nodes[member] = Node(self, member, founders or {}, rate)
        node.start()
        return node

    def has_failed(self, node: Node, failed: asyncio.Future[None]) -> None:
        """It has stopped itself."""
        error = failed.exception()
        if isinstance(error, MemberRemoved):
            return
        if not self.tolerates_failed_nodes and not self.checkers.violations:
            raise AssertionError(f"{node.id} stopped itself: {error!r}") from error

    def start(self, member: str) -> None:
        self.nodes[member].start()

    def crash(self, member: str, *, power: bool = True) -> None:
        self.nodes[member].kill(power=power)

    def wipe(self, member: str) -> None:
        self.nodes[member].wipe()

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
        node = self.nodes[process.name]
        if node.group is not None and (not node.failed or self.checkers.violations):
            self.checkers.turned(node)

    def count(self, what: str) -> None:
        self.coverage[what] = self.coverage.get(what, 0) + 1

    def note(self, node: str, what: str) -> None:
        """Only the simulator of whole clusters keeps a trace."""

    # State.

    @property
    def healthy(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.takes_part]

    def leaders(self) -> list[Node]:
        return leaders_of(self.nodes.values())

    def leader(self, within_s: float = 20.0) -> Node:
        """The leader that a majority follows; waits for it."""
        self.run_until(lambda: followed_leader(self.nodes.values()) is not None, within_s)
        leader = followed_leader(self.nodes.values())
        if leader is None:
            raise NodeFailed("unreachable")
        return leader

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
