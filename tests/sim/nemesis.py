"""Executes a plan of faults in a world, and ends them; `stop` removes all faults."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random

from palisade.metastore.errors import MetastoreError
from palisade.metastore.requests import Compact
from palisade.raftgroup.errors import MemberRemoved, RaftError
from palisade.recovery.decision import RefusalReason
from palisade.service.callers import UNRESTRICTED
from palisade.vault.errors import VaultDamaged, VaultDiverged
from palisade.wire.fencing_errors import ReleaseError
from tests.sim import foreign, segment_trouble
from tests.sim.damage import Part, damaged, is_damage
from tests.sim.disaster import Disaster
from tests.sim.faults import Fault, Kind, Plan
from tests.sim.fuse import CALLS_MAX, light_fuse, put_out
from tests.sim.guided import (
    DEAF_S,
    deaf_when_it_hands_over,
    dies_in_eviction,
    dropped_in_recovery,
    in_read,
    paused_before_its_grant,
    restarted,
    stopped_on_its_way,
    stops_unheard,
)
from tests.sim.left_behind import SLOW_S, left_behind
from tests.sim.link_faults import Links
from tests.sim.node import Host, wall_offset_s
from tests.sim.restoring import Restorer
from tests.sim.snapshot_trouble import Trouble, at_a_piece, trouble_of
from tests.sim.surviving import Survivors
from tests.sim.tolerance import is_failing, is_full, is_refusal
from tests.sim.world import World
from tests.support.machine import FSYNC_S, all_vote

RESTART_S = 0.5
"""How soon a node that stopped itself is restarted by its supervisor."""
WITHOUT_VAULT = 0.3
"""This many starts are interrupted."""
IN_EVICTION = 0.7
"""This many starts of followers with data beside their vaults are interrupted in an eviction."""
DEAF = 0.7
"""A leader that hands over with a greater amount receives nothing from other nodes from that moment on."""


class Nemesis:
    def __init__(self, world: World, plan: Plan) -> None:
        self.world, self.plan = world, plan
        self.going = True
        world.on_ended = self._ended
        world.tolerated = self._tolerated
        self.disaster = Disaster(self)
        self.links = Links(self, world.network, world.hosts, world.callers, world.count)
        self.restorer, self.survivors = Restorer(self, self.disaster), Survivors(self, self.disaster)
        self._removed: dict[str, None] = {}
        """Members that an administrator has removed and not added again yet."""
        self._acts: dict[Kind, Callable[[Fault, Host], None]] = {
            Kind.CRASH: self._crash, Kind.CRASH_IN_WRITE: self._crash_in_write,
            Kind.CRASH_IN_TURN: self._crash_in_turn, Kind.PAUSE_IN_TURN: self._pause_in_turn,
            Kind.PAUSE_IN_READ: lambda fault, host: in_read(self, host, fault),
            Kind.RESTART_IN_READ: lambda fault, host: in_read(self, host, fault, lambda: restarted(self, host)),
            Kind.SUSPEND: lambda fault, host: in_read(self, host, fault, lambda: self._stand_still(fault, host)),
            Kind.POWER: self._power, Kind.PAUSE: self._pause, Kind.STOP: self._stop,
            Kind.ISOLATE: self.links.isolate, Kind.ONE_WAY: self.links.one_way, Kind.CUT: self.links.cut,
            Kind.FLAP: self.links.flap, Kind.SPLIT: self.links.split,
            Kind.STORM: self.links.storm, Kind.SLOW_LINK: self.links.slow_link,
            Kind.SLOW_DISK: self._slow_disk, Kind.FULL_DISK: self._full_disk, Kind.FAILING_DISK: self._failing_disk,
            Kind.FULL_SEGMENTS: lambda fault, host: segment_trouble.full(self, fault, host),
            Kind.DAMAGED_SEGMENTS: lambda fault, host: segment_trouble.damaged(self, fault, host),
            Kind.WIPE: self._wipe, Kind.LEFT_BEHIND: self._left_behind,
            Kind.TORN_VAULT: self._torn_vault, Kind.TRANSFER: self._transfer, Kind.REMOVE: self._remove,
            Kind.COMPACT: self._compact, Kind.FOREIGN_VAULT: self._foreign_vault, Kind.DAMAGE: self._damage,
            Kind.ISOLATE_LONG: self.links.isolate, Kind.WALL_STEP: self._wall_step,
            Kind.CRASH_IN_START: self._crash_in_start, Kind.WIPE_AND_MORE: self._wipe_and_more,
            Kind.STOP_SUSPECTED: lambda fault, host: stops_unheard(
                self, host, lambda: self._stop(fault, host), fault.amount
            ),
            Kind.STOP_IN_START: lambda fault, host: stopped_on_its_way(
                self, host, lambda: self._stop(fault, host), fault.for_s, fault.amount
            ),
            Kind.PAUSE_BEFORE_GRANT: lambda fault, host: paused_before_its_grant(
                self, host, fault.for_s, lambda: self.struck(fault)
            ),
            Kind.BACKUP: lambda fault, host: self.restorer.take(host, lambda: self.struck(fault)),
            Kind.RESTORE: lambda fault, host: self.restorer.restore(fault),
            Kind.LOSE_QUORUM: lambda fault, host: self.survivors.lose_quorum(fault),
            Kind.DROPPED_IN_RECOVERY: lambda fault, host: dropped_in_recovery(
                self, host, fault.for_s, lambda: self.struck(fault)
            ),
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
            if host.disk.segments.full:
                segment_trouble.make_room(host)
            self._heal(host)
            self.start_at(host)

    def _begin(self, fault: Fault) -> None:
        if not self.going or self.disaster.under_way:
            return
        for host in self._targets(fault.target):
            self.world.note(host.id, f"fault {fault}")
            self._acts[fault.kind](fault, host)

    def struck(self, fault: Fault) -> None:
        """It has taken effect: only then is it counted."""
        self.world.count(f"fault: {fault.kind.value}")

    def _targets(self, target: str) -> list[Host]:
        if target == "leader":
            return self.world.leaders()[:1]
        hosts = self.world.hosts
        return list(hosts.values()) if target == "all" else [hosts[target]]

    def later(self, after_s: float, undo: Callable[[], None]) -> None:
        """Not if all faults were removed, or a new history began, before."""
        epoch = self.world.epoch
        self.world.simulation.after(after_s, lambda: undo() if self.going and self.world.epoch == epoch else None)

    def begin_anew(self) -> None:
        """All faults are over, and no restart is pending; stopped nodes stay down."""
        self.world.network.heal()
        self._removed.clear()
        for host in self.world.hosts.values():
            self._heal(host)

    @staticmethod
    def _heal(host: Host) -> None:
        disk = host.disk
        disk.fsync_s, disk.journal_s, disk.hand.dies_at = FSYNC_S, 0.0, 0
        disk.shelf.on_step = lambda: None
        disk.full = disk.failing = disk.bad_vault = False
        if host.runs and host.process is not None:
            put_out(host.process)
            host.process.resume()
        if host.reader is not None:
            host.reader.steps.go_on()

    # Nodes

    def start_at(self, host: Host) -> None:
        if not host.runs and not self.disaster.under_way:
            self.world.note(host.id, "starts")
            host.start()

    def _ended(self, host: Host) -> None:
        """By itself, or by request."""
        foreign.reset(host)
        if host.disk.backend.torn and isinstance(host.ended, VaultDamaged):
            host.disk.put_vault_aside()
        elif host.disk.damage is not None and is_damage(host.ended):
            self._refused(host)
        self.world.simulation.after(RESTART_S, lambda: self.start_at(host))

    def _tolerated(self, host: Host, error: BaseException) -> bool:
        """A node may stop itself if its disk is full, damaged, or not its own."""
        self.world.count(f"stopped itself: {type(error).__name__}")
        if isinstance(error, MemberRemoved):
            return host.id in self._removed
        if host.foreign is not None and is_refusal(error, host.foreign):
            return True
        if host.foreign is RefusalReason.DIVERGED and isinstance(error, VaultDiverged):
            return True  # If its revision is compacted, that is detected only after it (strange 24).
        if (host.disk.full or host.was_full) and is_full(error):
            self.world.count(f"fault: {Kind.FULL_DISK.value}")
            return True
        if (host.disk.bad_vault or host.was_failing) and is_failing(error):
            self.world.count(f"fault: {Kind.FAILING_DISK.value}")
            return True
        if host.disk.backend.torn and isinstance(error, VaultDamaged):
            return True
        return host.disk.damage is not None and is_damage(error)

    def _kill(self, fault: Fault, host: Host, *, power: bool = False) -> None:
        if host.runs:
            self.struck(fault)
        host.kill(power=power)

    def _crash(self, fault: Fault, host: Host) -> None:
        self._kill(fault, host)
        self.later(fault.for_s, lambda: self.start_at(host))

    def _crash_in_write(self, fault: Fault, host: Host) -> None:
        hand, process = host.disk.hand, host.process
        if process is None or process.dead:
            return
        hand.dies_at, hand.behind = 1 + int(fault.amount * 12), fault.amount * 12 % 1 < 0.5
        hand.die = lambda: self._kill(fault, host)
        process.on_death[fault] = lambda: self.later(fault.for_s, lambda: self.start_at(host))

    def _crash_in_start(self, fault: Fault, host: Host) -> None:
        host.kill()

        def start() -> None:
            if not host.runs:
                if fault.amount * 4 % 1 < WITHOUT_VAULT:
                    host.disk.put_vault_aside()
                self.start_at(host)
                if host.follows and self.world.has_rare and fault.amount * 8 % 1 < IN_EVICTION:
                    dies_in_eviction(self, host, fault)
                else:
                    self._crash_in_write(fault, host)

        self.later(fault.for_s, start)

    def _crash_in_turn(self, fault: Fault, host: Host) -> None:
        process = host.process
        if process is None or process.dead:
            return
        light_fuse(process, 1 + int(fault.amount * CALLS_MAX), lambda: self._kill(fault, host))
        process.on_death[fault] = lambda: self.later(fault.for_s, lambda: self.start_at(host))

    def _power(self, fault: Fault, host: Host) -> None:
        self._kill(fault, host, power=True)
        self.later(fault.for_s, lambda: self.start_at(host))

    def _pause(self, fault: Fault, host: Host) -> None:
        if host.runs:
            self.struck(fault)
            self._stand_still(fault, host)

    def _pause_in_turn(self, fault: Fault, host: Host) -> None:
        process = host.process
        if process is not None and not process.dead:
            light_fuse(process, 1 + int(fault.amount * CALLS_MAX), lambda: self._pause(fault, host))

    def _stand_still(self, fault: Fault, host: Host) -> None:
        process = host.process
        if process is not None and not process.dead:
            process.pause()
            self.later(fault.for_s, process.resume)

    def _wall_step(self, fault: Fault, host: Host) -> None:
        host.step_wall(wall_offset_s(fault.amount))
        host.run_at(self.world.rate_of(fault.amount * 7 % 1))
        if host.runs:
            self.struck(fault)

    def _stop(self, fault: Fault, host: Host) -> None:
        """In any phase."""
        if not host.runs or host.node is None:
            return
        phase = host.node.topology.member.life.phase

        def gone() -> None:
            host.kill()
            self.world.note(host.id, f"has stopped on request while {phase.value}")
            self.struck(fault)
            self.world.count(f"stopped while: {phase.value}")
            if self.going:
                self.later(fault.for_s, lambda: self.start_at(host))
            else:
                self.start_at(host)

        host.stop(gone)

    # Disks

    def _slow_disk(self, fault: Fault, host: Host) -> None:
        disk = host.disk
        disk.fsync_s = 1.5 * fault.amount**3
        if host.runs and not host.follows:
            self.struck(fault)

        def fast() -> None:
            disk.fsync_s = FSYNC_S

        self.later(fault.for_s, fast)

    def _full_disk(self, fault: Fault, host: Host) -> None:
        disk = host.disk
        disk.full = host.was_full = True

        def room() -> None:
            disk.full = False

        self.later(fault.for_s, room)

    def _failing_disk(self, fault: Fault, host: Host) -> None:
        disk = host.disk
        disk.failing, disk.bad_vault, host.was_failing = fault.amount < 0.5, True, True

        def works() -> None:
            disk.failing = disk.bad_vault = False

        self.later(fault.for_s, works)

    def _torn_vault(self, fault: Fault, host: Host) -> None:
        host.kill(power=True)
        if host.disk.vault_lineage is not None:
            self.struck(fault)
        host.disk.put_vault_aside()
        self.later(fault.for_s, lambda: self.start_at(host))

    def _foreign_vault(self, fault: Fault, host: Host) -> None:
        host.kill()
        if foreign.make_foreign(host, fault.amount):
            self.struck(fault)
        self.later(fault.for_s, lambda: self.start_at(host))

    def _damage(self, fault: Fault, host: Host) -> None:
        """Only a vault of a follower, and one member at a time: as with a lost disk."""
        chance = Random(f"damage {self.world.seed} {fault}")
        part = Part.VAULT if host.follows else chance.choice(list(Part))
        if part is not Part.VAULT and (self._removed or not self.is_whole()):
            return
        host.kill(power=True)
        damage = host.disk.damage = damaged(host.disk, part, chance)
        if damage is not None:
            self.struck(fault)
            self.world.note(host.id, f"damage of the {part.value}: {damage.what}")
        self.later(fault.for_s, lambda: self.start_at(host))

    def _refused(self, host: Host) -> None:
        """The administrator's reaction when a node has refused a damaged disk: as the error says."""
        damage, error = host.disk.damage, host.ended
        self.world.count(f"damage refused: {damage.part.value}")
        self.world.note(host.id, f"refuses its {damage.part.value}: {type(error).__name__}")
        if damage.part is Part.VAULT:
            host.disk.put_vault_aside()
        else:
            host.wipe()

    def _wipe(self, fault: Fault, host: Host) -> None:
        """Not while another member is without its disk: with two of three lost, acknowledged writes are lost."""
        if host.follows or (not self._removed and self.is_whole()):
            host.wipe()
            if fault.kind is Kind.WIPE:
                self.struck(fault)
            self.later(fault.for_s, lambda: self.start_at(host))

    def _wipe_and_more(self, fault: Fault, host: Host) -> None:
        disks = host.disks
        self._wipe(fault, host)
        if host.follows or host.disks == disks:
            return

        def trouble(sender: str) -> None:
            if not self.going or self._removed:
                return
            self.struck(fault)
            self.world.count(f"snapshot trouble: {kind.value}")
            if kind is Trouble.RECEIVER:
                host.kill()
                self.later(fault.for_s, lambda: self.start_at(host))
            elif kind is Trouble.MEMBERSHIP:
                self._take_out(host, fault.for_s)
            else:
                self.links.block([(sender, host.id), (host.id, sender)], 3.0)
                self._transfer_from(self.world.hosts[sender], None)

        kind, piece = trouble_of(fault.amount)
        at_a_piece(self.world, host.id, piece, trouble)

    def _left_behind(self, fault: Fault, host: Host) -> None:
        slow = replace(fault, kind=Kind.SLOW_DISK, for_s=SLOW_S)
        left_behind(self, host, fault, lambda: self._crash_in_write(fault, host), lambda: self._slow_disk(slow, host))

    def is_whole(self) -> bool:
        """Whether every member is a voter with its current disk, as a leader knows it to be committed."""
        settled = [
            group.members
            for group in (leader.group for leader in self.world.leaders())
            if group is not None and group._replica.membership_settled()
        ]
        return any(all_vote(members, self.world.members) for members in settled)

    # The group

    def _at(
        self, host: Host, work: Callable[[Host], Awaitable[object]], struck: Callable[[], None] = lambda: None
    ) -> None:
        """A request of an administrator to a node; the result is ignored. `struck` is called when it is executed."""
        process = host.process
        if process is None or process.dead or host.node is None:
            return

        async def ask() -> None:
            try:
                await work(host)
            except (RaftError, ReleaseError, MetastoreError):
                return
            struck()

        process.start(ask())

    def _transfer(self, fault: Fault, host: Host) -> None:
        for leader in self.world.leaders():
            target = host.id if host.id != leader.id and fault.amount < 0.5 else None
            if fault.amount > DEAF:
                deaf_when_it_hands_over(self, leader, 2 * (fault.amount - DEAF) + DEAF_S)
            self._transfer_from(leader, target, lambda: self.struck(fault))

    def _transfer_from(self, leader: Host, target: str | None, struck: Callable[[], None] = lambda: None) -> None:
        self._at(leader, lambda leader: leader.group.transfer(target), struck)  # type: ignore[union-attr]

    def _remove(self, fault: Fault, host: Host) -> None:
        if not self._removed and self.is_whole():
            self._take_out(host, fault.for_s, lambda: self.struck(fault))

    def _take_out(self, host: Host, for_s: float, struck: Callable[[], None] = lambda: None) -> None:
        """Remove it from the group; later it joins with a new disk."""
        for leader in self.world.leaders():
            self._at(leader, lambda leader: leader.group.remove(host.id), struck)  # type: ignore[union-attr]

        self._removed[host.id] = None

        def anew() -> None:
            del self._removed[host.id]
            host.wipe()
            self.start_at(host)

        self.later(1.0 + for_s, anew)

    def _compact(self, fault: Fault, host: Host) -> None:
        if not host.follows and host.store is not None:
            request = Compact(max(1, host.store.revision))
            self._at(
                host, lambda host: host.node.key_values.write(request, caller=UNRESTRICTED), lambda: self.struck(fault)
            )
