"""Clients that read and write continuously, and a nemesis that injects faults: both drawn from the seed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from palisade.raftgroup.errors import RaftError
from tests.support.raft_cluster import Cluster, Node
from tests.support.raft_network import Weather

KEYS = ("a", "b")


class Clients:
    """Some on each node; they restart with their node. `pause_s`: the longest time between two operations."""

    def __init__(self, cluster: Cluster, *, each: int = 2, pause_s: float = 0.15) -> None:
        self._cluster = cluster
        self._each = each
        self._pause_s = pause_s
        self._busy: set[object] = set()
        self.going = True
        self._hire()

    def _hire(self) -> None:
        """Every running node has its clients."""
        if not self.going:
            return
        for node in self._cluster.nodes.values():
            if node.runs and node.group is not None and node.process not in self._busy:
                self._busy.add(node.process)
                for _ in range(self._each):
                    node.process.start(self._work(node))
        self._cluster.simulation.after(0.05, self._hire)

    async def _work(self, node: Node) -> None:
        random, checkers = self._cluster.random, self._cluster.checkers
        group = node.group
        while self.going and node.group is group and not node.failed:
            await asyncio.sleep(self._pause_s * random.random() ** 2)
            key, timeout_s = KEYS[int(random.random() * len(KEYS))], 0.2 + 2.0 * random.random()
            try:
                if random.random() < 0.5:
                    await checkers.write(node, key, "v", timeout_s)
                else:
                    await checkers.read(node, key, timeout_s)
            except RaftError:
                continue


class Nemesis:
    """Injects a random fault now and then, and removes it later. Never breaks more than it can restore."""

    def __init__(self, cluster: Cluster, *, every_s: float = 0.8, changes_members: bool = False) -> None:
        self._cluster = cluster
        self._every_s = every_s
        self._busy = True
        self.deeds: list[str] = []
        self._choices: list[Callable[[], None]] = [
            self._crash,
            self._crash,
            self._lose_all_power,
            self._isolate,
            self._isolate_leader,
            self._block_one_way,
            self._cut_link,
            self._cut_link,
            self._split,
            self._pause,
            self._pause_leader,
            self._pause_leader_alone,
            self._storm,
            self._slow_disk,
            self._transfer,
            self._transfer,
        ]
        if changes_members:
            self._choices += [self._replace_wiped, self._remove, self._add_back, self._add_back] * 2
        self._next()

    def _next(self) -> None:
        if not self._busy:
            return
        deed = self._choices[int(self._lot() * len(self._choices))]
        self.deeds.append(f"{self._cluster.simulation.now:.2f} {deed.__name__}")
        deed()
        self._cluster.simulation.after(self._every_s * 2 * self._lot(), self._next)

    def stop(self) -> None:
        """Removes all faults: every node runs, everything is connected."""
        self._busy = False
        self._cluster.network.heal()
        for node in self._cluster.nodes.values():
            node.disk.fsync_s = 0.0005
            if not node.runs:
                self._cluster.start(node.id)
            else:
                node.process.resume()

    def _lot(self) -> float:
        return self._cluster.random.random()

    def _later(self, longest_s: float, action: Callable[[], None]) -> None:
        self._cluster.simulation.after(longest_s * self._lot(), lambda: action() if self._busy else None)

    def _victim(self) -> Node:
        nodes = list(self._cluster.nodes.values())
        return nodes[int(self._lot() * len(nodes))]

    def _start(self, node: Node) -> None:
        if not node.runs:
            self._cluster.start(node.id)

    def _crash(self) -> None:
        node = self._victim()
        self._cluster.crash(node.id, power=self._lot() < 0.5)
        self._later(2.0, lambda: self._start(node))

    def _lose_all_power(self) -> None:
        for node in self._cluster.nodes.values():
            self._cluster.crash(node.id)
            self._later(1.0, lambda node=node: self._start(node))

    def _isolate(self) -> None:
        self._cluster.network.isolate(self._victim().id)
        self._later(4.0, self._cluster.network.blocked.clear)

    def _isolate_leader(self) -> None:
        for node in self._cluster.leaders():
            self._cluster.network.isolate(node.id)
        self._later(4.0, self._cluster.network.blocked.clear)

    def _block_one_way(self) -> None:
        one, other = self._victim(), self._victim()
        if one is not other:
            self._cluster.network.block(one.id, other.id)
        self._later(3.0, self._cluster.network.blocked.clear)

    def _cut_link(self) -> None:
        """Two members are cut off from each other, and a third one remains connected to both."""
        one, other = self._victim(), self._victim()
        if one is not other:
            self._cluster.network.block(one.id, other.id)
            self._cluster.network.block(other.id, one.id)
        self._later(4.0, self._cluster.network.blocked.clear)

    def _split(self) -> None:
        nodes = list(self._cluster.nodes)
        minority = {node for node in nodes if self._lot() < 0.5}
        for one in minority:
            for other in set(nodes) - minority:
                self._cluster.network.block(one, other)
                self._cluster.network.block(other, one)
        self._later(3.0, self._cluster.network.blocked.clear)

    def _pause(self, node: Node | None = None) -> None:
        node = node or self._victim()
        process = node.process
        if process is not None and not process.dead:
            process.pause()
            self._later(3.0, process.resume)

    def _pause_leader(self) -> None:
        for node in self._cluster.leaders():
            self._pause(node)

    def _pause_leader_alone(self) -> None:
        """When it resumes it receives no message, so that only its own clock shows how long it was paused."""
        for node in self._cluster.leaders():
            self._cluster.network.isolate(node.id)
            self._pause(node)
        self._later(5.0, self._cluster.network.blocked.clear)

    def _storm(self) -> None:
        self._cluster.network.weather = Weather(
            (0.0005, 0.001 + 0.1 * self._lot() ** 2), 0.2 * self._lot() ** 2, 0.2 * self._lot(), 0.3 * self._lot()
        )
        self._later(4.0, self._calm)

    def _calm(self) -> None:
        self._cluster.network.weather = Weather()

    def _slow_disk(self) -> None:
        disk = self._victim().disk
        disk.fsync_s = 0.5 * self._lot() ** 2

        def fast() -> None:
            disk.fsync_s = 0.0005

        self._later(3.0, fast)

    def _transfer(self) -> None:
        for node in self._cluster.leaders():
            node.process.start(_try(node.group.transfer(None)))

    # Membership.

    def _replace_wiped(self) -> None:
        """A disk is lost; the node returns under its old id and is added again later."""
        node = self._victim()
        outsiders = [other for other in self._cluster.nodes.values() if not self._belongs(other)]
        if not outsiders and not node.process.paused:
            self._cluster.wipe(node.id)
            self._cluster.start(node.id)

    def _remove(self) -> None:
        """Not while a disk is lost: that, and a removal, would be two of three."""
        for leader in self._cluster.leaders():
            if all(_is_voter_for(leader, node) for node in self._cluster.nodes.values()):
                leader.process.start(_try(leader.group.remove(self._victim().id)))

    def _add_back(self) -> None:
        add_outsiders(self._cluster)

    def _belongs(self, node: Node) -> bool:
        return any(_is_voter_for(leader, node) for leader in self._cluster.leaders())


def add_outsiders(cluster: Cluster) -> None:
    """The leader adds each node that is no voter with its current storage; a removed one gets a new storage first."""
    for node in cluster.nodes.values():
        running = node.runs and node.group is not None and not node.process.paused
        if running and node.group.removal.error is not None:
            cluster.wipe(node.id)
            cluster.start(node.id)
    for leader in cluster.leaders():
        for node in cluster.healthy:
            if not _is_voter_for(leader, node):
                leader.process.start(_try(leader.group.add(cluster.member(node, becomes_voter=True))))


def all_vote(cluster: Cluster) -> bool:
    leaders = cluster.leaders()
    return len(leaders) == 1 and all(_is_voter_for(leaders[0], node) for node in cluster.nodes.values())


def _is_voter_for(leader: Node, node: Node) -> bool:
    member = leader.group.members.get(node.id)
    voter = node.id in leader.group.members.voters
    return member is not None and voter and node.group is not None and member.incarnation == node.group.incarnation


async def _try(change: Awaitable[object]) -> None:
    try:
        await change
    except RaftError:
        return
