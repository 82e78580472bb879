"""Executes a plan of faults on the machines of a group, and ends them; `stop` removes all faults.

The faults are tables of acts, by kind, in files named after their subject (`*_faults.py`, ...). Those here need a
`Machine` and its `Group` alone, so they serve bare Raft groups (`tests/support/raft_cluster.py`) as well;
`cluster_nemesis.py` adds those of whole nodes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from palisade.metastore.errors import MetastoreError
from palisade.raftgroup.errors import RaftError
from palisade.wire.fencing_errors import ReleaseError
from tests.sim import group_faults, link_faults, machine_faults
from tests.sim.faults import Fault, Kind, Plan
from tests.support.machine import FSYNC_S, Machine, all_vote
from tests.support.raft_network import Network
from tests.support.simulation import Simulation


class World(Protocol):
    """`callers`: clients, by their names in the network."""

    simulation: Simulation
    network: Network
    callers: Sequence[str]

    @property
    def hosts(self) -> Mapping[str, Machine]: ...
    def leaders(self) -> Sequence[Machine]: ...
    def count(self, what: str) -> None:
        """For the coverage of a run."""
        ...

    def note(self, node: str, what: str) -> None:
        """For its trace."""
        ...


class Nemesis:
    acts: ClassVar[dict[Kind, Callable[[Any, Fault, Any], None]]] = {
        **machine_faults.ACTS, **link_faults.ACTS, **group_faults.ACTS,
    }  # fmt: skip

    def __init__(self, world: World, plan: Plan) -> None:
        self.world: Any = world
        self.plan = plan
        self.going = True
        self.interrupted = False
        """No fault begins, and no node is started."""
        self.removed: dict[str, None] = {}
        """Members that an administrator has removed and not added again yet."""
        self._interruptions = 0

    def start(self) -> None:
        for fault in self.plan:
            self.world.simulation.after(fault.at_s, lambda fault=fault: self._begin(fault))

    def stop(self) -> None:
        """Every node runs, with all others connected."""
        self.going = False
        self.world.network.heal()
        for name in self.removed:
            self.world.hosts[name].wipe()
        for host in self.world.hosts.values():
            self.heal(host)
            self.start_at(host)

    def interrupt(self) -> None:
        """All faults are over, and no restart is pending; stopped nodes stay down until `interrupted` is reset."""
        self.interrupted = True
        self._interruptions += 1
        self.world.network.heal()
        self.removed.clear()
        for host in self.world.hosts.values():
            self.heal(host)

    def heal(self, host: Machine) -> None:
        host.disk.fsync_s = FSYNC_S
        if host.runs:
            host.process.resume()

    def _begin(self, fault: Fault) -> None:
        for host in self._targets(fault.target):
            if self.going and not self.interrupted:
                self.world.note(host.id, f"fault {fault}")
                self.acts[fault.kind](self, fault, host)

    def _targets(self, target: str) -> Sequence[Machine]:
        """For "leader" also one that does not know yet that another one leads."""
        if target == "leader":
            return self.world.leaders()
        hosts = self.world.hosts
        return list(hosts.values()) if target == "all" else [hosts[target]]

    # For acts

    def struck(self, fault: Fault) -> None:
        """It has taken effect: only then is it counted."""
        self.world.count(f"fault: {fault.kind.value}")

    def later(self, after_s: float, act: Callable[[], None]) -> None:
        """Not if all faults were removed before."""
        began = self._interruptions
        self.world.simulation.after(after_s, lambda: act() if self.going and self._interruptions == began else None)

    def start_at(self, host: Machine) -> None:
        if not host.runs and not self.interrupted:
            self.world.note(host.id, "starts")
            host.start()

    def start_after(self, after_s: float, host: Machine) -> None:
        self.later(after_s, lambda: self.start_at(host))

    def request(
        self, host: Machine, work: Callable[[], Awaitable[object]], struck: Callable[[], None] = lambda: None
    ) -> None:
        """Of an administrator to a member; the result is ignored. `struck` is called when it is executed."""
        if not host.runs or host.group is None:
            return

        async def ask() -> None:
            try:
                await work()
            except (RaftError, ReleaseError, MetastoreError):
                return
            struck()

        host.process.start(ask())

    def may_lose_disk(self, host: Machine) -> bool:
        """Not while another member is without its disk: with two of three lost, acknowledged writes are lost."""
        return host.follows or (not self.removed and self.is_whole())

    def is_whole(self) -> bool:
        """Whether every member is a voter with its current disk, as a leader knows it to be committed."""
        members = [host for host in self.world.hosts.values() if not host.follows]
        groups = [leader.group for leader in self.world.leaders()]
        return any(group._replica.membership_settled() and all_vote(group.members, members) for group in groups)
