"""The nemesis of a whole cluster: its nodes have vaults, segments, clocks and readers, stop in order, and are restarted
by their supervisors; all of them may be lost at once (`disaster.py`)."""

from __future__ import annotations

from typing import ClassVar

from palisade.raftgroup.errors import MemberRemoved
from tests.sim import disk_faults, guided, left_behind, node_faults, segment_trouble, snapshot_trouble
from tests.sim.disaster import Disaster
from tests.sim.faults import Kind, Plan
from tests.sim.fuse import put_out
from tests.sim.nemesis import Nemesis
from tests.sim.node import Host
from tests.sim.restoring import Restorer
from tests.sim.surviving import Survivors
from tests.sim.world import World

RESTART_S = 0.5
"""How soon a node that stopped itself is restarted by its supervisor."""


class ClusterNemesis(Nemesis):
    acts: ClassVar = {
        **Nemesis.acts, **node_faults.ACTS, **disk_faults.ACTS, **guided.ACTS, **segment_trouble.ACTS,
        Kind.LEFT_BEHIND: left_behind.left_behind, Kind.WIPE_AND_MORE: snapshot_trouble.wipe_and_more,
        Kind.BACKUP: lambda nemesis, fault, host: nemesis.restorer.take(fault, host),
        Kind.RESTORE: lambda nemesis, fault, host: nemesis.restorer.restore(fault),
        Kind.LOSE_QUORUM: lambda nemesis, fault, host: nemesis.survivors.lose_quorum(fault),
    }  # fmt: skip

    def __init__(self, world: World, plan: Plan) -> None:
        super().__init__(world, plan)
        world.on_ended, world.tolerated = self._ended, self._tolerated
        disaster = Disaster(self)
        self.restorer, self.survivors = Restorer(self, disaster), Survivors(self, disaster)

    def heal(self, host: Host) -> None:
        disk = host.disk
        if disk.segments.full:
            segment_trouble.make_room(host)
        disk.journal_s, disk.hand.dies_at = 0.0, 0
        disk.shelf.on_step = lambda: None
        disk.full = disk.failing = disk.bad_vault = False
        if host.runs:
            put_out(host.process)
        if host.reader is not None:
            host.reader.steps.go_on()
        super().heal(host)

    def _ended(self, host: Host) -> None:
        """By itself, or by request."""
        disk_faults.remedied(self.world, host)
        self.world.simulation.after(RESTART_S, lambda: self.start_at(host))

    def _tolerated(self, host: Host, error: BaseException) -> bool:
        self.world.count(f"stopped itself: {type(error).__name__}")
        if isinstance(error, MemberRemoved):
            return host.id in self.removed
        return disk_faults.explained(self.world, host, error)
