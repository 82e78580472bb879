"""Disaster and restore: all members are lost, and a new cluster is made of a backup, as docs/operations.md says.

`node/restore_data_dir.py` builds the data of each member on a new disk. In some cases a damaged copy of the backup is
tried first and must be refused. `disaster.py` describes what remains of the old cluster.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from palisade.metastore.backup import BackupCheck
from palisade.metastore.store_errors import BackupInvalid
from palisade.node.restore_data_dir import begin_log, generation_after, restore_store
from tests.sim.backups import CLUSTER, Backup, damaged_copy, taking
from tests.sim.checkers.durable import acknowledged
from tests.sim.clients import TIMEOUT_S
from tests.sim.disaster import SHORTEST_S, Disaster
from tests.sim.disk import Disk, SimStore
from tests.sim.faults import Fault
from tests.sim.node import Host
from tests.sim.outcomes import EXPECTED

if TYPE_CHECKING:
    from tests.sim.cluster_nemesis import ClusterNemesis

NAME = "restored state"
"""The checker that reports a damaged backup that is accepted."""


class Restorer:
    """The administrator's actions."""

    def __init__(self, nemesis: ClusterNemesis, disaster: Disaster) -> None:
        self._nemesis, self._world, self._disaster = nemesis, nemesis.world, disaster
        self._kept: list[Backup] = []

    # A backup

    def take(self, fault: Fault, host: Host) -> None:
        self._disaster.admin.process.start(self._take(fault, host))

    async def _take(self, fault: Fault, host: Host) -> None:
        """A backup that completes after the end of its cluster is not used."""
        world, history, admin = self._world, self._world.history, self._disaster.admin
        floor = acknowledged(history)
        check = BackupCheck("the backup")
        try:
            async with asyncio.timeout(TIMEOUT_S):
                data = await world.ask(admin.process, admin.name, host.http, taking(admin.process.wall_ns))
        except (*EXPECTED, ConnectionError, TimeoutError) as error:
            world.note(admin.name, f"gets no backup of {host.id}: {type(error).__name__}")
            world.count("backup: none")
            return
        if world.history is not history:
            return
        check.feed(data)
        backup = Backup(data, check.finish()[0], floor, history)
        world.note(admin.name, f"has a backup of {host.id} at {backup.revision}, {floor} was acknowledged")
        self._nemesis.struck(fault)
        for checker in world.checkers:
            checker.backed_up(backup)
        self._kept.append(backup)

    # The disaster

    def restore(self, fault: Fault) -> None:
        world = self._world
        if not self._kept:
            world.count("restore: there is no backup")
            return
        chance = Random(f"restore {world.seed} {fault}")
        backup = self._kept[-1] if chance.random() < 0.7 else chance.choice(self._kept)
        base = backup.base(world.generation + 1)
        self._nemesis.struck(fault)
        self._disaster.strike(chance)
        self._disaster.ends_history(base, f"all members are lost at {fault.at_s:.3f}, the backup is of {base.revision}")
        for host in world.hosts.values():
            (self._disaster.leave if host.follows else self._disaster.lose)(host, chance)
        self._disaster.admin.process.start(self._build(backup, base.generation, SHORTEST_S + fault.for_s, chance))

    # The new cluster

    async def _build(self, backup: Backup, generation: int, after_s: float, chance: Random) -> None:
        world = self._world
        await asyncio.sleep(after_s)
        if chance.random() < 0.5:
            await self._try_damaged(backup, chance)
        for host in world.members:
            store = SimStore(host.disk)
            restored = await restore_store(
                store, [backup.data], "the backup", lambda header: generation_after(header, generation)
            )
            await begin_log(host.disk.journal, CLUSTER, host.id, restored, chance)
        world.simulation.after(0.0, lambda: self._begin(chance))

    async def _try_damaged(self, backup: Backup, chance: Random) -> None:
        """On a disk of its own, as a restore has a folder of its own: nothing is created from it."""
        data, how = damaged_copy(backup.data, chance)
        store = SimStore(Disk(self._world.simulation, "scratch"))
        try:
            await restore_store(store, [data], "the backup", generation_after)
        except BackupInvalid as error:
            self._world.note("-", f"a backup that is {how} is refused: {error}")
            self._world.count(f"damaged backup refused: {how}")
            return
        self._world.fail(NAME, f"a backup that is {how} is taken for whole")

    def _begin(self, chance: Random) -> None:
        self._world.count("restore: done")
        self._disaster.is_over(chance)
