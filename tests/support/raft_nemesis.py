"""Clients that read and write continuously, and a nemesis with a plan of faults: both drawn from the seed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from palisade.raftgroup.errors import RaftError
from tests.sim.faults import CLIENTS, Fault, Kind, Scenario, plan_of
from tests.sim.link_faults import Links
from tests.support.machine import FSYNC_S
from tests.support.raft_cluster import Cluster, Node

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


KINDS = (
    Kind.CRASH, Kind.CRASH, Kind.POWER, Kind.ISOLATE, Kind.ISOLATE, Kind.ONE_WAY, Kind.CUT, Kind.CUT, Kind.SPLIT,
    Kind.SLOW_LINK, Kind.STORM, Kind.SLOW_DISK, Kind.TRANSFER, Kind.TRANSFER, Kind.PAUSE, Kind.PAUSE, Kind.PAUSE,
)  # fmt: skip
OF_GROUP = Scenario("group", KINDS, every_s=0.8)
OF_MEMBERS = Scenario("members of a group", (*KINDS, *(Kind.WIPE, Kind.REMOVE) * 4), every_s=0.8)
ALONE, UNREAD_S, SILENT_S = 0.5, 0.05, 2.0
"""In a pause of more than that, and for some seconds after it, no message arrives but those of its first 50 ms: only
the member's own clock shows how long it was paused, and that the answers which it reads then are old."""


class Nemesis:
    """Executes a plan of the simulator's faults (`sim/faults.py`) on a bare group. Never breaks more than it can
    restore."""

    def __init__(self, cluster: Cluster, faults_s: float, *, changes_members: bool = False) -> None:
        self._cluster, self._going = cluster, True
        self._links = Links(self, cluster.network, cluster.nodes)
        names, scenario = tuple(cluster.nodes), OF_MEMBERS if changes_members else OF_GROUP
        plan = plan_of(cluster.simulation.seed, scenario, faults_s, names, names)
        self.plan = tuple(fault for fault in plan if fault.other != CLIENTS)
        self._acts: dict[Kind, Callable[[Fault, Node], None]] = {
            Kind.CRASH: self._crash, Kind.POWER: self._crash, Kind.PAUSE: self._pause, Kind.SLOW_DISK: self._slow_disk,
            Kind.ISOLATE: self._links.isolate, Kind.ONE_WAY: self._links.one_way, Kind.CUT: self._links.cut,
            Kind.SPLIT: self._links.split, Kind.SLOW_LINK: self._links.slow_link, Kind.STORM: self._links.storm,
            Kind.TRANSFER: self._transfer, Kind.WIPE: self._wipe, Kind.REMOVE: self._remove,
        }  # fmt: skip
        for fault in self.plan:
            cluster.simulation.after(fault.at_s, lambda fault=fault: self._begin(fault))

    def _begin(self, fault: Fault) -> None:
        if self._going:
            for node in self._targets(fault.target):
                self._acts[fault.kind](fault, node)

    def _targets(self, target: str) -> list[Node]:
        if target == "leader":
            return self._cluster.leaders()
        nodes = self._cluster.nodes
        return list(nodes.values()) if target == "all" else [nodes[target]]

    def later(self, after_s: float, undo: Callable[[], None]) -> None:
        self._cluster.simulation.after(after_s, lambda: undo() if self._going else None)

    def struck(self, fault: Fault) -> None:
        """The coverage of faults is counted in the simulator."""

    def stop(self) -> None:
        """Removes all faults: every node runs, everything is connected."""
        self._going = False
        self._cluster.network.heal()
        for node in self._cluster.nodes.values():
            node.disk.fsync_s = FSYNC_S
            self._start(node)
            node.process.resume()

    def _start(self, node: Node) -> None:
        if not node.runs:
            self._cluster.start(node.id)

    def _crash(self, fault: Fault, node: Node) -> None:
        self._cluster.crash(node.id, power=fault.kind is Kind.POWER or fault.amount < 0.5)
        self.later(fault.for_s, lambda: self._start(node))

    def _pause(self, fault: Fault, node: Node) -> None:
        process = node.process
        if process is not None and not process.dead:
            process.pause()
            if fault.amount > ALONE:
                self.later(UNREAD_S, lambda: self._links.isolate(replace(fault, for_s=fault.for_s + SILENT_S), node))
            self.later(fault.for_s, process.resume)

    def _slow_disk(self, fault: Fault, node: Node) -> None:
        disk = node.disk
        disk.fsync_s = 0.5 * fault.amount**2

        def fast() -> None:
            disk.fsync_s = FSYNC_S

        self.later(fault.for_s, fast)

    def _transfer(self, fault: Fault, node: Node) -> None:
        for leader in self._cluster.leaders():
            leader.process.start(_try(leader.group.transfer(None)))

    # Membership.

    def _wipe(self, fault: Fault, node: Node) -> None:
        """A disk is lost; the node returns under its old id and is added again later."""
        if self._is_whole() and not node.process.paused:
            self._cluster.wipe(node.id)
            self._cluster.start(node.id)
            self._add_back(fault)

    def _remove(self, fault: Fault, node: Node) -> None:
        """Not while a disk is lost: that, and a removal, would be two of three."""
        if self._is_whole():
            node.disk.removed = True
            for leader in self._cluster.leaders():
                leader.process.start(_try(leader.group.remove(node.id)))
            self._add_back(fault)

    def _add_back(self, fault: Fault) -> None:
        self.later(fault.for_s, lambda: add_outsiders(self._cluster))

    def _is_whole(self) -> bool:
        """There is a leader, for which every node is a voter with its current disk."""
        leaders, nodes = self._cluster.leaders(), self._cluster.nodes.values()
        return bool(leaders) and all(_is_voter_for(leader, node) for leader in leaders for node in nodes)


def add_outsiders(cluster: Cluster) -> None:
    """The leader adds each node that is no voter with its current storage; a removed one gets a new storage first,
    whether it has learned of its removal or not."""
    for node in cluster.nodes.values():
        running = node.runs and node.group is not None and not node.process.paused
        removed = node.disk.removed and any(not _is_voter_for(leader, node) for leader in cluster.leaders())
        if running and (removed or node.group.removal.error is not None):
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
