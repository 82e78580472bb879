"""Disaster and restore: all members are lost, and a new cluster is made of a backup, as docs/cli.md says.

The data of each member is built by `node/restored_data.py`, on a new disk; a damaged copy of the backup is tried first
in some cases, and has to be refused. What is left of before, as it may be: followers that were stopped, or that never
heard of it and run on, with their vaults, pages and leases; vaults of members that somebody has put back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from metastore.backup import BackupCheck
from metastore.store_errors import BackupInvalid
from node.restored_data import begin_log, generation_after, restore_store
from recovery.decide import RefusalReason
from tests.sim import foreign
from tests.sim.backups import CLUSTER, Backup, Base, damaged_copy, taking
from tests.sim.checkers.durable import revisions_of
from tests.sim.clients import TIMEOUT_S, Client
from tests.sim.disk import Disk, SimStore
from tests.sim.faults import Fault
from tests.sim.history import History
from tests.sim.node import Host
from tests.sim.outcomes import EXPECTED

if TYPE_CHECKING:
    from tests.sim.nemesis import Nemesis

NAME = "restored state"
"""Of the checker that says so where a damaged backup is taken for whole."""
SHORTEST_S = 0.2
APART_S = 0.3
"""Between the starts of the restored nodes."""


class Restorer:
    """What the administrator does. `under_way`: no node is to be started by anybody else."""

    def __init__(self, nemesis: Nemesis) -> None:
        self._nemesis, self._world = nemesis, nemesis.world
        self._kept: list[Backup] = []
        self._admin: Client | None = None
        self.under_way = False

    @property
    def admin(self) -> Client:
        if self._admin is None:
            self._admin = Client(self._world, "administrator")
        return self._admin

    # A backup

    def take(self, host: Host, struck: Callable[[], None]) -> None:
        self.admin.process.start(self._take(host, struck))

    async def _take(self, host: Host, struck: Callable[[], None]) -> None:
        """One that arrives when its cluster is gone is not used."""
        world, history, process = self._world, self._world.history, self.admin.process
        floor = acknowledged(history)
        check = BackupCheck("the backup")
        try:
            async with asyncio.timeout(TIMEOUT_S):
                data = await world.ask(process, self.admin.name, host.http, taking(process.wall_ms))
        except (*EXPECTED, ConnectionError, TimeoutError) as error:
            world.note(self.admin.name, f"gets no backup of {host.id}: {type(error).__name__}")
            world.count("backup: none")
            return
        if world.history is not history:
            return
        check.feed(data)
        backup = Backup(data, check.finish()[0], floor, history)
        world.note(self.admin.name, f"has a backup of {host.id} at {backup.revision}, {floor} was acknowledged")
        struck()
        for checker in world.checkers:
            checker.backed_up(backup)
        self._kept.append(backup)

    # The disaster

    def restore(self, fault: Fault) -> None:
        world = self._world
        if self.under_way or not self._kept:
            world.count("restore: there is no backup")
            return
        chance = Random(f"restore {world.seed} {fault}")
        backup = self._kept[-1] if chance.random() < 0.7 else chance.choice(self._kept)
        base = backup.base(world.generation + 1)
        self.under_way = True
        self._nemesis.struck(fault)
        self._nemesis.begin_anew()
        for host in world.members:
            host.kill(power=chance.random() < 0.5)
        world.restored(base)
        world.note("-", f"all members are lost at {fault.at_s:.3f}, the backup is of {base.revision}")
        for host in world.hosts.values():
            (self._follower if host.follows else self._member)(host, chance)
        self.admin.process.start(self._build(base, SHORTEST_S + fault.for_s, chance))

    def _member(self, host: Host, chance: Random) -> None:
        """Its data folder is another one; the old vault may be put back into it."""
        before = host.disk
        foreign.reset(host)
        host.new_disk()
        host.joins, host.vault = False, None
        if chance.random() < 0.2:
            host.disk.take_vault(before)
            self._is_of_before(host)

    def _follower(self, host: Host, chance: Random) -> None:
        lot = chance.random()
        if host.foreign is not None or lot < 0.5:
            host.kill(power=lot < 0.2)
            foreign.reset(host)
        elif lot < 0.6:
            host.wipe()
        self._world.count(f"restore: follower {'runs on' if host.runs else 'is down'}")
        self._is_of_before(host)

    def _is_of_before(self, host: Host) -> None:
        """Its vault, if it is anybody's, has to be refused."""
        if host.disk.vault_lineage is not None:
            host.disk.foreign = RefusalReason.OLDER_HISTORY
            self._world.count("restore: vault of before")

    # The new cluster

    async def _build(self, base: Base, after_s: float, chance: Random) -> None:
        world = self._world
        await asyncio.sleep(after_s)
        if chance.random() < 0.5:
            await self._try_damaged(base, chance)
        for host in world.members:
            store = SimStore(host.disk)
            restored = await restore_store(
                store, [base.backup.data], "the backup", lambda header: generation_after(header, base.generation)
            )
            await begin_log(host.disk.journal, CLUSTER, host.id, restored, chance)
        world.simulation.after(0.0, lambda: self._begin(chance))

    async def _try_damaged(self, base: Base, chance: Random) -> None:
        """On a disk of its own, as a restore has a folder of its own: nothing is made of it."""
        data, how = damaged_copy(base.backup.data, chance)
        store = SimStore(Disk(self._world.simulation, "scratch"))
        try:
            await restore_store(store, [data], "the backup", generation_after)
        except BackupInvalid as error:
            self._world.note("-", f"a backup that is {how} is refused: {error}")
            self._world.count(f"damaged backup refused: {how}")
            return
        self._world.fail(NAME, f"a backup that is {how} is taken for whole")

    def _begin(self, chance: Random) -> None:
        self.under_way = self._world.is_down = False
        self._world.count("restore: done")
        for host in self._world.hosts.values():
            self._world.simulation.after(APART_S * chance.random(), lambda host=host: self._nemesis.start_at(host))
        self._world.begins_again()


def acknowledged(history: History) -> int:
    """The latest revision that any write was answered with."""
    return max((revision for operation in history.operations() for revision in revisions_of(operation)), default=0)
