"""One simulated machine and the node on it: each start is the production wiring of `node.member` or `node.follower`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from palisade.base.address import Address
from palisade.node.config import InitialMember, NodeConfig
from palisade.node.follower import FollowerNode
from palisade.node.member import Node
from palisade.recovery.vault_component import OnVault
from palisade.vault.fence_page import NO_FENCE
from palisade.vault.vault import Vault
from tests.sim.disk import Disk
from tests.sim.local_data import PIN_LIFE_S, LocalData
from tests.sim.machine import SimMachine
from tests.sim.sockets import SimLoop
from tests.support.machine import Machine
from tests.support.simulation import Process

if TYPE_CHECKING:
    from palisade.recovery.decision import RefusalReason
    from palisade.recovery.report import RecoveryReport
    from tests.sim.readers import ReaderBeside
    from tests.sim.world import World

HTTP, PEER, STREAM = 7401, 7501, 7601
WALL_STEP_S_MAX = 30 * 86400.0
RETENTION_LOOK_S, TRASH_S = 0.4, 1.0
"""Of a data node whose segments expire."""


class Host(Machine):
    """A machine: its disk, its clock, and, while it runs, its node."""

    def __init__(self, world: World, name: str, number: int, *, follows: bool, rate: float) -> None:
        self.world, self.id, self.follows, self.rate = world, name, follows, rate
        self.address = f"127.0.0.{number}"
        self.disk = Disk(world.simulation, name, count=world.count)
        self.disks = 1
        self.began = 0.0
        """The time of the last start."""
        self.reader: ReaderBeside | None = None
        self.vault: Vault | None = None
        self.node: Any = None
        self.store: Any = None
        self.part: Any = None
        """Its lease client."""
        self.looked_at: tuple[Any, ...] = ()
        """Its state when checkers were called last."""
        self.machine: SimMachine | None = None
        self.joins = False
        """Its disk was lost: it joins the group again."""
        self.was_full = self.was_failing = False
        """The state of its disk since the node was started."""
        self._ended_event = asyncio.Event()
        """A request to stop."""
        self._when_stopped: Callable[[], None] = lambda: None
        self.ended: BaseException | None = None
        """Why the last start ended by itself."""
        self.offset_s = 1000.0 + 1000.0 * world.chance.random()
        self.wall_offset_s = wall_offset_s(Random(f"wall {world.seed} {name}").random())
        """The difference of its wall clock to true time. No decision depends on that."""
        world.network.hosts[self.address] = name

    @property
    def foreign(self) -> RefusalReason | None:
        """Its vault is not its own, or of another history: it must be refused for that reason."""
        return self.disk.foreign

    @property
    def http(self) -> str:
        return f"{self.address}:{HTTP}"

    @property
    def is_active(self) -> bool:
        return self.node is not None and bool(self.node.topology.is_active)

    def state(self) -> tuple[Any, ...]:
        """Of a constructed node: the input of checkers after a turn; they are called when it has changed."""
        vault, holder = self.vault, self.part.holder
        shown = None if vault is None else (vault.backend, vault.position, vault.staging.released, *_shown(vault))
        if self.follows:
            return self.starts, vault, holder, shown
        group, fencing, stored = self.group, self.node.fencing, self.store._state
        replica, core = group._replica, fencing.lease_server.core
        engine = replica.engine
        return (
            self.starts, vault, holder, shown, self.failed, engine.role, engine.term, replica.membership,
            core.leads, core.rr, core.lm, fencing.log.released, stored.revision, stored.compacted,
        )  # fmt: skip

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
            segments=self.id in world.data_nodes,
        )
        if world.has_expiry:
            config = replace(config, segments_look_s=RETENTION_LOOK_S, segments_trash_s=TRASH_S)
        if self.follows:
            seeds = tuple(Address(host.address, PEER) for host in world.members)
            return replace(config, follow=True, seeds=seeds)
        if self.joins:
            at = world.hosts[world.survivor] if world.survivor else world.members[0]
            return replace(config, join=Address(at.address, HTTP))
        founders = tuple(
            InitialMember(host.id, *(Address(host.address, p) for p in (PEER, HTTP, STREAM))) for host in world.founders
        )
        return replace(config, initial_cluster=founders)

    def start(self) -> None:
        self.starts, self.began = self.starts + 1, self.world.now
        self.ended, self._ended_event = None, asyncio.Event()
        self.was_full, self.was_failing = self.disk.full, self.disk.bad_vault
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
        """The node of the current start, as soon as it is constructed."""
        member = node is not None and not self.follows
        self.node = node
        self.group, self.store = (node.group, node.store) if member else (None, None)
        self.part = node.fencing.part if member else node.fencing if node is not None else None

    def new_process(self, name: str) -> Process:
        """With the clock of this machine."""
        process = self.world.simulation.process(name, rate=self.rate, offset_s=self.offset_s, loop=SimLoop)
        process.wall_offset_s = self.wall_offset_s
        loop: Any = process.loop
        loop.network, loop.process, loop.name = self.world.network, process, self.id
        self.world.owners[process] = self
        return process

    async def _life(self, machine: SimMachine, process: Process) -> None:
        """As `node.run`: start, wait until stopped, and stop in any case."""
        node: Any = None
        ended_event = self._ended_event
        try:
            config = machine.config
            node = FollowerNode(config, self._on_vault(), machine) if self.follows else Node(config, machine=machine)
            self._is(node)
            self.world.wired(self, node)
            await node.start()
            await until(ended_event, node.wait())
        except Exception as error:
            self.ended = error
        finally:
            if node is not None:
                await node.stop()
        if ended_event.is_set() and self.ended is None:
            self.world.simulation.after(0.0, lambda: self._when_stopped() if self.process is process else None)
        else:
            self.world.has_ended(self, process)

    def _on_vault(self) -> OnVault:
        if not self.world.has_rare:
            return OnVault()
        shelf = self.disk.shelf
        return OnVault(resources=lambda vault: LocalData(shelf, vault), pin_life_s_max=PIN_LIFE_S)

    def _recovered(self, report: RecoveryReport) -> None:
        case = report.case.value if report.case is not None else "-"
        self.world.note(
            self.id, f"recovery {case} {report.outcome.value}: LV {report.lv}, LM {report.lm}, MM {report.mm}"
        )
        self.world.count(f"recovered {case} {report.outcome.value}")

    def _opened(self, vault: Vault) -> None:
        self.vault = vault
        self.world.opened(self, vault)

    def stop(self, then: Callable[[], None]) -> None:
        """An orderly stop, as by SIGTERM. `then` is called when the node has ended."""
        if self.process is not None:
            self._when_stopped = then
            self.process.call(self._ended_event.set)

    def kill(self, *, power: bool = False) -> None:
        """kill -9, or a loss of power."""
        process = self.process
        if process is None:
            return
        if process.dead:
            if power:
                self.disk.lose_power()
                self._boot()
            return
        if self.node is not None:
            self.world.killed(self)
        process.reset_peers = not power
        process.kill()
        if self.machine is not None:
            self.machine.sim_peers.vanish(within_s=2.0 if power else 0.01)
        self.disk.killed(power=power)
        self._is(None)
        if power:
            self._boot()

    def _boot(self) -> None:
        """Of the machine: a new clock, and no earlier process runs any more."""
        self.offset_s = 500.0 * self.world.chance.random() - self.rate * self.world.simulation.now
        self.kill_reader()
        self.vault = None

    def kill_reader(self) -> None:
        if self.reader is not None:
            self.reader.process.kill()
            self.reader = None

    def step_wall(self, by_s: float) -> None:
        """Sets its wall clock."""
        self.wall_offset_s += by_s
        reader = self.reader.process if self.reader is not None else None
        for process in (self.process, reader):
            if process is not None:
                process.wall_offset_s = self.wall_offset_s

    def run_at(self, rate: float) -> None:
        """Its clock continues at another speed. With rounding it may advance a nanosecond, and never goes back."""
        self.offset_s += (self.rate - rate) * self.world.simulation.now + 1e-9
        self.rate = rate
        for process, host in self.world.owners.items():
            if host is self:
                process.keep_time(rate, self.offset_s)

    def wipe(self) -> None:
        """The disk is lost. The next start joins the cluster again."""
        self.kill(power=True)
        self.new_disk()
        self.joins = not self.follows

    def new_disk(self) -> None:
        """Replaces a lost one. The machine keeps its boot number."""
        boots = self.disk.boots
        self.disks += 1
        self.disk = Disk(self.world.simulation, self.id, self.disks, boots, self.world.count)


def _shown(vault: Vault) -> tuple[object, ...]:
    """According to its fence page: whether it may be trusted, and until when."""
    fence = vault.page.fence if vault.page is not None else NO_FENCE
    return fence.state, fence.deadline_ns


def wall_offset_s(lot: float) -> float:
    """Mostly some minutes, sometimes weeks. `lot`: from 0 to 1, where 0.5 is none."""
    return float(WALL_STEP_S_MAX * (2 * lot - 1) ** 5)


async def until(ended_event: asyncio.Event, coroutine: Coroutine[Any, Any, None]) -> None:
    """Until that, or the end of the coroutine. Raises its error."""
    waiting, running = asyncio.ensure_future(ended_event.wait()), asyncio.ensure_future(coroutine)
    await asyncio.wait({waiting, running}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if running.done():
        running.result()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
