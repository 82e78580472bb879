"""A majority is lost forever, and a survivor continues alone (`palisade recover-quorum`, docs/operations.md).

`node/survivor_store.py` changes its log; its vault is moved aside. The others have new disks, and join it. Mostly the
administrator takes the survivor with the longest log, as the documentation says; another one loses more, and must not
lose anything of its own log.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from palisade.metastore.results import RevisionEvents
from palisade.metastore.state_machine import MetaStore
from palisade.node.survivor_store import NO_TIME, Break, continue_alone, preview
from palisade.raftgroup.errors import DataDirectoryError, MembershipRefused
from palisade.raftgroup.proposals import batch_in
from tests.sim.backups import Base, Survivor
from tests.sim.committing import Committing
from tests.sim.disaster import SHORTEST_S, Disaster
from tests.sim.disk import SimStore
from tests.sim.faults import Fault
from tests.sim.history import History
from tests.sim.node import Host

if TYPE_CHECKING:
    from tests.sim.cluster_nemesis import ClusterNemesis


class Survivors:
    """The administrator's actions."""

    def __init__(self, nemesis: ClusterNemesis, disaster: Disaster) -> None:
        self._nemesis, self._world, self._disaster = nemesis, nemesis.world, disaster

    def lose_quorum(self, fault: Fault) -> None:
        world, disaster = self._world, self._disaster
        chance = Random(f"lose quorum {world.seed} {fault}")
        disaster.strike(chance)
        host, at = self._survivor(chance)
        if host is None or at is None:
            world.note("-", "no member can go on alone: all come back as they were")
            world.simulation.after(SHORTEST_S, self._give_up)
            return
        self._nemesis.struck(fault)
        base = base_of(host, at, world.history)
        disaster.ends_history(
            base,
            f"all members but {host.id} are lost at {fault.at_s:.3f}, it has {base.revision}, and {base.kept} of that "
            "was committed",
        )
        for other in world.hosts.values():
            if other.follows:
                disaster.leave(other, chance)
            elif other is not host:
                disaster.lose(other, chance)
                other.joins = True
        disaster.admin.process.start(self._go_on(host, at, SHORTEST_S + fault.for_s, chance))

    def _survivor(self, chance: Random) -> tuple[Host, Break] | tuple[None, None]:
        """A possible survivor by its own log: a member, and not the only voter already."""
        found = []
        for host in self._world.members:
            try:
                at = preview(host.disk.journal, SimStore(host.disk), chance)
            except (DataDirectoryError, MembershipRefused) as error:
                self._world.count(f"survivor refused: {type(error).__name__}")
                continue
            found.append((host, at))
        if not found:
            return None, None
        if chance.random() < 0.3:
            return chance.choice(found)
        return max(found, key=lambda each: (each[1].survivor.last_term, each[1].survivor.last_index))

    def _give_up(self) -> None:
        self._nemesis.interrupted = False
        for host in self._world.hosts.values():
            self._nemesis.start_at(host)

    async def _go_on(self, host: Host, at: Break, after_s: float, chance: Random) -> None:
        world = self._world
        await asyncio.sleep(after_s)
        await continue_alone(host.disk.journal, at)
        host.disk.put_vault_aside()
        host.vault = None
        world.simulation.after(0.0, lambda: self._disaster.is_over(chance))


def base_of(host: Host, at: Break, before: History) -> Base:
    """All of its log, whether it was ever committed or not: it may have been acknowledged."""
    journal, tables = host.disk.journal, SimStore(host.disk)
    store = MetaStore(tables)
    committed = before.revisions()
    known = store.revision
    past = [events for events in committed if events.revision <= known]
    committing = Committing(store, lambda: past[-1].revision if past else known, past.append)
    first, last = store.applied[0] + 1, journal.last.index
    for entry in journal.slice(first, last + 1):
        batch = batch_in(entry.command)
        if batch is None:
            store.skip(entry.index, entry.term)
        else:
            store.apply(entry.index, entry.term, *batch)
        committing.look()
    store.apply(last + 1, journal.term + 1, NO_TIME, at.commands)
    revision = store.revision
    return Base(
        tuple(past), revision, at.generation, before, same_until(past, committed),
        survivor=Survivor(host.id, last + 1, store),
    )  # fmt: skip


def same_until(past: list[RevisionEvents], committed: tuple[RevisionEvents, ...]) -> int:
    """Up to which revision they are the same. An entry that only the survivor has may have created other revisions than
    the committed ones."""
    same = 0
    for ours, theirs in zip(past, committed, strict=False):
        if ours != theirs:
            break
        same = ours.revision
    return same
