"""Carries out a plan of faults in a world, and ends them; `stop` makes everything well again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random

from metastore.errors import MetastoreError
from metastore.requests import Compact
from node.components.lifecycle import ComponentFailed
from node.fencing.errors import FencingError
from node.topology.errors import NodeRefused
from raftgroup.errors import RaftError
from recovery.errors import RecoveryRefused
from tests.sim import foreign
from tests.sim.damage import Part, damaged, is_damage
from tests.sim.disk import FSYNC_S
from tests.sim.faults import Fault, Kind, Plan
from tests.sim.fuse import CALLS_MAX, light_fuse, put_out
from tests.sim.guided import dropped_in_recovery, paused_before_its_grant, stops_unheard
from tests.sim.node import Host
from tests.sim.snapshot_trouble import PIECES_MAX, at_a_piece
from tests.sim.world import World
from tests.support.raft_network import Weather

REFUSALS = (ComponentFailed, RecoveryRefused, NodeRefused)
DEAF_FROM = 0.6
"""An isolation of more than that cuts a node off from clients as well."""
RESTART_S = 0.5
"""How soon a node that stopped itself is started again by whoever looks after it."""


class Nemesis:
    def __init__(self, world: World, plan: Plan) -> None:
        self.world, self.plan = world, plan
        self.going = True
        world.on_ended = self._ended
        world.tolerated = self._tolerated
        self._removed: dict[str, None] = {}
        """Members that an administrator has taken out, and not let in again yet."""
        self._acts: dict[Kind, Callable[[Fault, Host], None]] = {
            Kind.CRASH: self._crash, Kind.CRASH_IN_WRITE: self._crash_in_write,
            Kind.CRASH_IN_TURN: self._crash_in_turn,
            Kind.POWER: self._power, Kind.PAUSE: self._pause, Kind.STOP: self._stop,
            Kind.ISOLATE: self._isolate, Kind.ONE_WAY: self._one_way, Kind.CUT: self._cut, Kind.FLAP: self._flap,
            Kind.SPLIT: self._split, Kind.STORM: self._storm, Kind.SLOW_LINK: self._slow_link,
            Kind.SLOW_DISK: self._slow_disk, Kind.FULL_DISK: self._full_disk, Kind.WIPE: self._wipe,
            Kind.TORN_VAULT: self._torn_vault, Kind.TRANSFER: self._transfer, Kind.REMOVE: self._remove,
            Kind.COMPACT: self._compact, Kind.FOREIGN_VAULT: self._foreign_vault, Kind.DAMAGE: self._damage,
            Kind.CRASH_IN_START: self._crash_in_start, Kind.WIPE_AND_MORE: self._wipe_and_more,
            Kind.STOP_SUSPECTED: lambda fault, host: stops_unheard(self, host, lambda: self._stop(fault, host)),
            Kind.PAUSE_BEFORE_GRANT: lambda fault, host: paused_before_its_grant(self, host, fault.for_s),
            Kind.DROPPED_IN_RECOVERY: lambda fault, host: dropped_in_recovery(self, host, fault.for_s),
        }  # fmt: skip

    def start(self) -> None:
        for fault in self.plan:
            self.world.simulation.after(fault.at_s, lambda fault=fault: self._begin(fault))

    def stop(self) -> None:
        self.going = False
        self.world.network.heal()
        for name in self._removed:
            self.world.hosts[name].wipe()
        for host in self.world.hosts.values():
            host.disk.fsync_s, host.disk.full, host.disk.hand.dies_at = FSYNC_S, False, 0
            if host.runs and host.process is not None:
                put_out(host.process)
                host.process.resume()
            else:
                self.start_at(host)

    def _begin(self, fault: Fault) -> None:
        if not self.going:
            return
        for host in self._targets(fault.target):
            self.world.note(host.id, f"fault {fault}")
            self.world.count(f"fault: {fault.kind.value}")
            self._acts[fault.kind](fault, host)

    def _targets(self, target: str) -> list[Host]:
        if target == "leader":
            return self.world.leaders()[:1]
        hosts = self.world.hosts
        return list(hosts.values()) if target == "all" else [hosts[target]]

    def later(self, after_s: float, undo: Callable[[], None]) -> None:
        self.world.simulation.after(after_s, lambda: undo() if self.going else None)

    # Nodes

    def start_at(self, host: Host) -> None:
        if not host.runs:
            self.world.note(host.id, "starts")
            host.start()

    def _ended(self, host: Host) -> None:
        """By itself, or because it was told to."""
        foreign.reset(host)
        if host.disk.damage is not None and is_damage(host.ended):
            self._refused(host)
        self.world.simulation.after(RESTART_S, lambda: self.start_at(host))

    def _tolerated(self, host: Host, error: BaseException) -> bool:
        """A node may stop itself where its disk takes nothing, is damaged, or holds what is not its own."""
        self.world.count(f"stopped itself: {type(error).__name__}")
        if host.foreign is not None and isinstance(error, REFUSALS):
            return True
        return host.disk.full or host.was_full or (host.disk.damage is not None and is_damage(error))

    def _crash(self, fault: Fault, host: Host) -> None:
        host.kill()
        self.later(fault.for_s, lambda: self.start_at(host))

    def _crash_in_write(self, fault: Fault, host: Host) -> None:
        hand, process = host.disk.hand, host.process
        if process is None or process.dead:
            return
        hand.dies_at, hand.behind = 1 + int(fault.amount * 12), fault.amount * 12 % 1 < 0.5
        process.on_death[fault] = lambda: self.later(fault.for_s, lambda: self.start_at(host))

    def _crash_in_start(self, fault: Fault, host: Host) -> None:
        host.kill()

        def start() -> None:
            if not host.runs:
                self.start_at(host)
                self._crash_in_write(fault, host)

        self.later(fault.for_s, start)

    def _crash_in_turn(self, fault: Fault, host: Host) -> None:
        process = host.process
        if process is None or process.dead:
            return
        light_fuse(process, 1 + int(fault.amount * CALLS_MAX), host.kill)
        process.on_death[fault] = lambda: self.later(fault.for_s, lambda: self.start_at(host))

    def _power(self, fault: Fault, host: Host) -> None:
        host.kill(power=True)
        self.later(fault.for_s, lambda: self.start_at(host))

    def _pause(self, fault: Fault, host: Host) -> None:
        process = host.process
        if process is not None and not process.dead:
            process.pause()
            self.later(fault.for_s, process.resume)

    def _stop(self, fault: Fault, host: Host) -> None:
        process, node = host.process, host.node
        if process is None or process.dead or node is None or not host.is_active:
            return

        async def stop() -> None:
            await node.stop()
            self.world.simulation.after(0.0, gone)

        def gone() -> None:
            if host.process is process:
                host.kill()
                self.world.note(host.id, "has stopped")
                if self.going:
                    self.later(fault.for_s, lambda: self.start_at(host))
                else:
                    self.start_at(host)

        process.start(stop())

    # Network

    def block(self, pairs: list[tuple[str, str]], for_s: float) -> None:
        network = self.world.network
        network.blocked.update(pairs)
        self.later(for_s, lambda: network.blocked.difference_update(pairs))

    def _isolate(self, fault: Fault, host: Host) -> None:
        others = [other for other in self.world.hosts if other != host.id]
        if fault.amount > DEAF_FROM:
            others += self.world.callers
        self.block([pair for other in others for pair in ((host.id, other), (other, host.id))], fault.for_s)

    def _one_way(self, fault: Fault, host: Host) -> None:
        self.block([(host.id, fault.other)], fault.for_s)

    def _cut(self, fault: Fault, host: Host) -> None:
        self.block([(host.id, fault.other), (fault.other, host.id)], fault.for_s)

    def _flap(self, fault: Fault, host: Host) -> None:
        times = 2 + int(fault.amount * 8)
        for number in range(times):
            self.later(number * fault.for_s / times, lambda: self.block(
                [(host.id, fault.other), (fault.other, host.id)], fault.for_s / times * 0.6
            ))  # fmt: skip

    def _split(self, fault: Fault, host: Host) -> None:
        ours = {host.id, fault.other}
        rest = [other for other in self.world.hosts if other not in ours]
        pairs = [(one, other) for one in (host.id, fault.other) for other in rest]
        self.block([*pairs, *((other, one) for one, other in pairs)], fault.for_s)

    def _storm(self, fault: Fault, host: Host) -> None:
        network, amount = self.world.network, fault.amount
        network.weather = Weather((0.0005, 0.001 + 0.15 * amount**2), 0.2 * amount**2, 0.2 * amount, 0.3 * amount)

        def calm() -> None:
            network.weather = Weather()

        self.later(fault.for_s, calm)

    def _slow_link(self, fault: Fault, host: Host) -> None:
        network, pair = self.world.network, (host.id, fault.other)
        network.slow[pair] = 2.0 * fault.amount**2
        self.later(fault.for_s, lambda: network.slow.pop(pair, None) and None)

    # Disks

    def _slow_disk(self, fault: Fault, host: Host) -> None:
        disk = host.disk
        disk.fsync_s = 1.5 * fault.amount**3

        def fast() -> None:
            disk.fsync_s = FSYNC_S

        self.later(fault.for_s, fast)

    def _full_disk(self, fault: Fault, host: Host) -> None:
        disk = host.disk
        disk.full = host.was_full = True

        def room() -> None:
            disk.full = False

        self.later(fault.for_s, room)

    def _torn_vault(self, fault: Fault, host: Host) -> None:
        host.kill(power=True)
        host.disk.put_vault_aside()
        self.later(fault.for_s, lambda: self.start_at(host))

    def _foreign_vault(self, fault: Fault, host: Host) -> None:
        host.kill()
        foreign.make_foreign(host, fault.amount)
        self.later(fault.for_s, lambda: self.start_at(host))

    def _damage(self, fault: Fault, host: Host) -> None:
        """Only a vault of a follower, and one member at a time: as with a disk that is lost."""
        chance = Random(f"damage {self.world.seed} {fault}")
        part = Part.VAULT if host.follows else chance.choice(list(Part))
        if part is not Part.VAULT and (self._removed or not self._is_whole()):
            return
        host.kill(power=True)
        damage = host.disk.damage = damaged(host.disk, part, chance)
        if damage is not None:
            self.world.note(host.id, f"damage of the {part.value}: {damage.what}")
        self.later(fault.for_s, lambda: self.start_at(host))

    def _refused(self, host: Host) -> None:
        """What its owner does when a node has refused a damaged disk: as the error says."""
        damage, error = host.disk.damage, host.ended
        self.world.count(f"damage refused: {damage.part.value}")
        self.world.note(host.id, f"refuses its {damage.part.value}: {type(error).__name__}")
        if damage.part is Part.VAULT:
            host.disk.put_vault_aside()
        else:
            host.wipe()

    def _wipe(self, fault: Fault, host: Host) -> None:
        """Not while another member is without its disk: with two of three lost, what was acknowledged is gone."""
        if host.follows or (not self._removed and self._is_whole()):
            host.wipe()
            self.later(fault.for_s, lambda: self.start_at(host))

    def _wipe_and_more(self, fault: Fault, host: Host) -> None:
        disks = host.disks
        self._wipe(fault, host)
        if host.follows or host.disks == disks:
            return

        def trouble(sender: str) -> None:
            if not self.going:
                return
            self.world.count(f"snapshot trouble: {'receiver' if fault.amount < 0.5 else 'sender'}")
            if fault.amount < 0.5:
                host.kill()
                self.later(fault.for_s, lambda: self.start_at(host))
            else:
                self.block([(sender, host.id), (host.id, sender)], 3.0)
                self._transfer_from(self.world.hosts[sender], None)

        at_a_piece(self.world, host.id, 1 + int(fault.amount * 2 * PIECES_MAX) % PIECES_MAX, trouble)

    def _is_whole(self) -> bool:
        """Whether every member is a voter with the disk that it has now, as the leader sees it."""
        for leader in self.world.leaders():
            members = leader.group.members if leader.group is not None else None
            if members is not None and all(self._is_voter(members, each) for each in self.world.members):
                return True
        return False

    @staticmethod
    def _is_voter(members: object, host: Host) -> bool:
        group, found = host.group, members.get(host.id)  # type: ignore[attr-defined]
        return (
            group is not None
            and found is not None
            and host.id in members.voters  # type: ignore[attr-defined]
            and found.incarnation == group.incarnation
        )

    # The group

    def _at(self, host: Host, work: Callable[[Host], Awaitable[object]]) -> None:
        """What an administrator asks of a node; whatever comes of it."""
        process = host.process
        if process is None or process.dead or host.node is None:
            return

        async def ask() -> None:
            try:
                await work(host)
            except (RaftError, FencingError, MetastoreError):
                return

        process.start(ask())

    def _transfer(self, fault: Fault, host: Host) -> None:
        for leader in self.world.leaders():
            self._transfer_from(leader, host.id if host.id != leader.id and fault.amount < 0.5 else None)

    def _transfer_from(self, leader: Host, target: str | None) -> None:
        self._at(leader, lambda leader: leader.group.transfer(target))  # type: ignore[union-attr]

    def _remove(self, fault: Fault, host: Host) -> None:
        if self._removed or not self._is_whole():
            return
        for leader in self.world.leaders():
            self._at(leader, lambda leader: leader.group.remove(host.id))  # type: ignore[union-attr]

        self._removed[host.id] = None

        def anew() -> None:
            del self._removed[host.id]
            host.wipe()
            self.start_at(host)

        self.later(1.0 + fault.for_s, anew)

    def _compact(self, fault: Fault, host: Host) -> None:
        if not host.follows and host.store is not None:
            self._at(host, lambda host: host.node.service.write(Compact(max(1, host.store.revision))))
