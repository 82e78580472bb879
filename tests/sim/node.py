"""One simulated machine and the node on it: each start is the production wiring of `node.server` or `node.follower`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from node.address import Address
from node.config import InitialMember, NodeConfig
from node.follower import FollowerNode
from node.server import Node
from tests.sim.disk import Disk
from tests.sim.machine import SimMachine
from tests.sim.sockets import SimLoop
from tests.support.simulation import Process
from vault.vault import Vault

if TYPE_CHECKING:
    from raftgroup.group import Group
    from recovery.decide import RefusalReason
    from recovery.report import RecoveryReport
    from tests.sim.world import World

HTTP, PEER, STREAM = 7401, 7501, 7601


class Host:
    """A machine: its disk, its clock, and, while it runs, its node. `runs`: it has a process, perhaps a paused one."""

    def __init__(self, world: World, name: str, number: int, *, follows: bool, rate: float) -> None:
        self.world, self.id, self.follows, self.rate = world, name, follows, rate
        self.address = f"127.0.0.{number}"
        self.disk = Disk(world.simulation, name)
        self.disks = 1
        self.starts = 0
        self.process: Process | None = None
        self.reader_process: Process | None = None
        self.vault: Vault | None = None
        self.node: Any = None
        self.group: Group | None = None
        self.store: Any = None
        self.part: Any = None
        """Its fencing as a holder."""
        self.machine: SimMachine | None = None
        self.joins = False
        """Its disk was lost: it enters the group anew."""
        self.was_full = False
        """Its disk has been full since the node was started."""
        self.foreign: RefusalReason | None = None
        """Its vault is not its own, or of another history: it has to be refused for that."""
        self.ended: BaseException | None = None
        """Why the last start came to its end by itself."""
        self.offset_s = 1000.0 + 1000.0 * world.chance.random()
        world.network.hosts[self.address] = name

    @property
    def runs(self) -> bool:
        return self.process is not None and not self.process.dead

    @property
    def paused(self) -> bool:
        return self.process is not None and self.process.paused

    @property
    def healthy(self) -> bool:
        return self.runs and not self.paused and not self.failed

    @property
    def failed(self) -> bool:
        failed = self.group.failed if self.group is not None else None
        return failed is not None and failed.done()

    @property
    def http(self) -> str:
        return f"{self.address}:{HTTP}"

    @property
    def is_active(self) -> bool:
        return self.node is not None and bool(self.node.topology.is_active)

    def config(self) -> NodeConfig:
        world = self.world
        ports = {"http": HTTP, "peer": PEER, "stream": STREAM}
        config = NodeConfig(
            self.id,
            Path("/nowhere") / self.id,
            "sim",
            **{name: Address(self.address, port) for name, port in ports.items()},
            retention=world.settings.retention,
            timing=world.settings.timing,
            fencing=world.fences_at(self),
            join_token=world.settings.token,
            catch_up_difference=world.settings.catch_up_difference,
        )
        if self.follows:
            seeds = tuple(Address(host.address, PEER) for host in world.members)
            return replace(config, follow=True, seeds=seeds)
        if self.joins:
            return replace(config, join=Address(world.members[0].address, HTTP))
        founders = tuple(
            InitialMember(host.id, *(Address(host.address, p) for p in (PEER, HTTP, STREAM))) for host in world.founders
        )
        return replace(config, initial_cluster=founders)

    def start(self) -> None:
        self.starts += 1
        self.ended, self.was_full = None, self.disk.full
        process = self.new_process(self.id)
        self.process = process
        self._is(None)
        hand = self.disk.hand
        hand.dies_at, hand.is_dead, hand.die = 0, lambda: process.dead, self.kill
        self.machine = SimMachine(self.config(), self.world, self.disk, process, self.starts)
        self.machine.home.on_open = self._opened
        self.machine.home.on_report = self._recovered
        process.start(self._life(self.machine, process))

    def _is(self, node: Any) -> None:
        """The node of the present start, as soon as it is put together."""
        member = node is not None and not self.follows
        self.node = node
        self.group, self.store = (node.group, node.store) if member else (None, None)
        self.part = node.fencing.part if member else node.fencing if node is not None else None

    def new_process(self, name: str) -> Process:
        """With the clock of this machine."""
        process = self.world.simulation.process(name, rate=self.rate, offset_s=self.offset_s, loop=SimLoop)
        loop: Any = process.loop
        loop.network, loop.process, loop.name = self.world.network, process, self.id
        self.world.owners[process] = self
        return process

    async def _life(self, machine: SimMachine, process: Process) -> None:
        """As `node.running`: start, wait, and stop in any case."""
        node: Any = None
        try:
            config = machine.config
            node = FollowerNode(config, machine=machine) if self.follows else Node(config, machine=machine)
            self._is(node)
            self.world.wired(self, node)
            await node.start()
            await node.wait()
        except Exception as error:
            self.ended = error
        finally:
            if node is not None:
                await node.stop()
        self.world.has_ended(self, process)

    def _recovered(self, report: RecoveryReport) -> None:
        case = report.case.value if report.case is not None else "-"
        self.world.note(
            self.id, f"recovery {case} {report.outcome.value}: LV {report.lv}, LM {report.lm}, MM {report.mm}"
        )
        self.world.count(f"recovered {case} {report.outcome.value}")

    def _opened(self, vault: Vault) -> None:
        self.vault = vault
        self.world.opened(self, vault)

    def kill(self, *, power: bool = False) -> None:
        """kill -9, or a loss of power."""
        process = self.process
        if process is None or process.dead:
            return
        process.reset_peers = not power
        process.kill()
        if self.machine is not None:
            self.machine.sim_peers.vanish(within_s=2.0 if power else 0.01)
        self.disk.killed(power=power)
        self._is(None)
        if power:
            self.offset_s = 500.0 * self.world.chance.random() - self.rate * self.world.simulation.now
            if self.reader_process is not None:
                self.reader_process.kill()
                self.reader_process = self.vault = None

    def wipe(self) -> None:
        """The disk is lost. The next start enters the cluster anew."""
        self.kill(power=True)
        self.disks += 1
        self.disk = Disk(self.world.simulation, self.id, self.disks)
        self.joins = not self.follows
