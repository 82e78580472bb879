"""Replacements in a wired cluster for sockets, the log of the group and the topology (`wired_world.py`)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgpack

from palisade.fencing.messages import Elsewhere, RefusedMessage
from palisade.fencing.timing import FenceTiming
from palisade.node.fencing.leader_connection import LeaderLink
from palisade.node.fencing.lease_server import HolderConnection
from palisade.raftgroup.errors import Unavailable
from palisade.raftgroup.membership import Membership
from palisade.raftgroup.proposals import Applied, AwaitedProposal, Proposal
from palisade.wire.fence_messages import pack, unpack

if TYPE_CHECKING:
    from tests.support.wired_world import Cluster, Node

TIMING = FenceTiming(fence_s=0.5, margin_s=0.05)
BOOT = b"thisboot"
QUORUM_LEASE_S, VOTES_AFTER_S = 0.30, 0.36
DEADLINE_S = 3.0


class Wire:
    """One direction between two nodes: in order, delayed; held while they are cut off; after a break nothing arrives
    any more."""

    def __init__(self, cluster: Cluster, a: str, b: str, arrive: Callable[[Any], None]) -> None:
        self._cluster, self._ends, self._arrive = cluster, (a, b), arrive
        self._under_way: deque[tuple[float, Any]] = deque()
        self._due = False
        self.broken = False

    def send(self, message: Any) -> None:
        if not self.broken:
            self._under_way.append((self._cluster.now + self._cluster.latency(), message))
            self._soon()

    def _soon(self) -> None:
        if self._under_way and not self._due:
            self._due = True
            wait_s = max(self._under_way[0][0] - self._cluster.now, 0.02 if self._cluster.is_cut(*self._ends) else 0.0)
            self._cluster.simulation.after(wait_s, self._pump)

    def _pump(self) -> None:
        self._due = False
        if not self.broken and not self._cluster.is_cut(*self._ends):
            self._arrive(self._under_way.popleft()[1])
        elif self.broken:
            self._under_way.clear()
        self._soon()


class SimulatedLink(LeaderLink):
    """`LeaderLink`, with wires in place of a socket."""

    cluster: Cluster

    async def _stay_at(self, address: str | None) -> None:
        if address is None:
            return
        there, here = self.cluster.nodes[address], self.cluster.nodes[self._node]
        self._visit = Visit(self, here, there)
        await asyncio.sleep(self.cluster.latency())
        if self.cluster.is_cut(address, self._node) or there.process.dead:
            return
        visit = self._visit
        self.cluster.visits[visit] = None
        self._begin(address, lambda message: visit.out.send(pack(message)), visit.close)
        try:
            while not visit.closed and not self._has_moved(address):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        finally:
            self._end()
            self._hint = visit.elsewhere if visit.elsewhere != address else None
            visit.close()

    def _has_moved(self, address: str) -> bool:
        return self._route.leads_here() or self._route.leader() not in (None, address)


class Visit:
    """A connection of a holder at another node."""

    def __init__(self, link: SimulatedLink, here: Node, there: Node) -> None:
        cluster, self._holder, self._there = link.cluster, here.holder, there
        self._cluster = cluster
        self.closed = False
        self.elsewhere: str | None = None
        grantor, process, own = there.fencing.grantor, there.process, here.process
        self._grantor = grantor
        self.back = Wire(cluster, there.name, here.name, lambda body: own.call(self._deliver, body))
        self.connection = HolderConnection(lambda message: self.back.send(pack(message)), self._close_soon)
        self.out = Wire(cluster, here.name, there.name, lambda body: process.call(self._receive, body))

    def _receive(self, body: Any) -> None:
        self._grantor.receive(self.connection, unpack(msgpack.unpackb(msgpack.packb(body))))

    def _deliver(self, body: Any) -> None:
        message: Any = unpack(msgpack.unpackb(msgpack.packb(body)))
        if isinstance(message, Elsewhere | RefusedMessage):
            self.elsewhere = message.leader if isinstance(message, Elsewhere) else None
            self.close()
        elif not self.closed:
            self._holder.deliver(message)

    def _close_soon(self) -> None:
        """By the other end: messages in flight arrive before."""
        self._cluster.simulation.after(self._cluster.latency() + 0.02, self.close)

    def close(self) -> None:
        if not self.closed:
            self.closed = self.out.broken = self.back.broken = True
            self._cluster.visits.pop(self, None)
            self._there.process.call(self._grantor.lost, self.connection)


class Entry:
    """An entry of the log. `index` counts from 1."""

    def __init__(self, index: int, term: int, stamp: Sequence[int], commands: Sequence[bytes], leader: str) -> None:
        self.index, self.term, self.stamp, self.commands, self.leader = index, term, stamp, commands, leader
        self.ends: list[tuple[int, int, Callable[[Any], None]]] = []


class SimulatedGroup:
    """The interface of the group at one node."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster, self._name = cluster, name
        self.failed: list[Exception] = []
        self.lease_until = 0.0
        self.led_term = 0

    def _node(self) -> Node:
        return self._cluster.nodes[self._name]

    def fail(self, error: Exception) -> None:
        self.failed.append(error)
        raise error

    @property
    def leads(self) -> bool:
        return self.led_term > 0

    @property
    def leader(self) -> str | None:
        return self._node().knows_leader

    @property
    def members(self) -> Membership:
        return self._cluster.members

    @property
    def generation(self) -> int:
        return self._cluster.members.generation

    def check_alive(self) -> None:
        if self.failed:
            raise self.failed[-1]

    def try_read_barrier(self) -> bool:
        """As a leader whose lease holds, which has applied what it has committed."""
        return self.leads and self._node().process.now() < self.lease_until

    async def read_barrier(self, *, timeout_s: float = 5.0) -> int:
        """The leader's commit index, once it is applied here."""
        node, cluster = self._node(), self._cluster
        until = node.process.now() + timeout_s
        asked = cluster.committed
        while True:
            await asyncio.sleep(cluster.latency())
            if cluster.majority_reaches(self._name) and node.applied >= asked:
                return node.applied
            if node.process.now() >= until:
                raise Unavailable("no barrier in time")

    def submit(self, proposal: Proposal) -> None:
        self._cluster.propose(self._node(), proposal.commands, proposal.end, proposal.timeout_s)

    async def propose(self, command: bytes, *, timeout_s: float = 5.0) -> Applied:
        future: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
        self.submit(AwaitedProposal([command], future, timeout_s))
        return await future

    async def transfer(self, target: str | None) -> str:
        cluster = self._cluster
        others = [name for name in cluster.nodes if name != self._name and cluster.may_lead(name)]
        if not others:
            raise Unavailable("no other member leads")
        cluster.step_down(self._node())
        cluster.votes_at = cluster.now
        cluster.elect(cluster.random.choice(others))
        return others[0]


class Active:
    """Replaces `ActiveNodes`: the state of the logical topology."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def is_active(self, node: str, incarnation: int) -> bool:
        return incarnation > 0 and self._cluster.incarnations[node] == incarnation

    def is_gone(self, node: str) -> bool:
        return not self._cluster.incarnations.get(node)
