"""The end of a history: all members are lost at once, and a new cluster begins, as docs/operations.md describes.

From a backup (`restoring.py`) or from a survivor (`surviving.py`); this is their common part. What may remain of the
old cluster: followers that were stopped, or that never noticed and keep running, with their vaults, pages and leases;
vaults of members that were put back.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from palisade.recovery.decision import RefusalReason
from tests.sim import foreign
from tests.sim.backups import Base
from tests.sim.clients import Client
from tests.sim.node import Host

if TYPE_CHECKING:
    from tests.sim.cluster_nemesis import ClusterNemesis

SHORTEST_S = 0.2
"""Until there is another cluster."""
APART_S = 0.3
"""Between the starts of its nodes."""


class Disaster:
    def __init__(self, nemesis: ClusterNemesis) -> None:
        self._nemesis, self._world = nemesis, nemesis.world
        self._admin: Client | None = None

    @property
    def admin(self) -> Client:
        """The process that creates the new cluster, and takes the backups."""
        if self._admin is None:
            self._admin = Client(self._world, "administrator")
        return self._admin

    def strike(self, chance: Random) -> None:
        """All members are dead afterwards; each may have lost its power."""
        self._nemesis.interrupt()
        for host in self._world.members:
            host.kill(power=chance.random() < 0.5)

    def ends_history(self, base: Base, what: str) -> None:
        """The recorded history is complete: another one begins with `base`."""
        self._world.restored(base)
        self._world.note("-", what)

    def lose(self, host: Host, chance: Random) -> None:
        """A member: its data folder is new; the old vault may be put back into it."""
        before = host.disk
        foreign.reset(host)
        host.new_disk()
        host.joins, host.vault = False, None
        if chance.random() < 0.2:
            host.disk.take_vault(before)
            self._is_of_before(host)

    def leave(self, host: Host, chance: Random) -> None:
        """A follower, which has not noticed the disaster."""
        lot = chance.random()
        if host.foreign is not None or lot < 0.5:
            host.kill(power=lot < 0.2)
            foreign.reset(host)
        elif lot < 0.6:
            host.wipe()
        self._world.count(f"restore: follower {'runs on' if host.runs else 'is down'}")
        self._is_of_before(host)

    def _is_of_before(self, host: Host) -> None:
        """Its vault, if it belongs to a cluster, must be refused."""
        if host.disk.vault_lineage is not None:
            host.disk.foreign = RefusalReason.OLDER_HISTORY
            self._world.count("restore: vault of before")

    def is_over(self, chance: Random) -> None:
        """All stopped nodes start."""
        self._nemesis.interrupted = self._world.is_down = False
        for host in self._world.hosts.values():
            self._world.simulation.after(APART_S * chance.random(), lambda host=host: self._nemesis.start_at(host))
        self._world.begins_again()
