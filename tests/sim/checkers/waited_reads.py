"""A read returns the state of its key at the revision that it names or has waited for, or a later one (F11).

A client that waits for a revision reads its own writes, or those of a client that passed it the revision, from a vault.
A fenced read of a strict key names the revision up to which it includes every strict change.
"""

from __future__ import annotations

from palisade.metastore.results import RevisionEvents
from palisade.vault.change import Item
from tests.sim.backups import Base
from tests.sim.node import Host
from tests.sim.world import Checker, World


class WaitedReads(Checker):
    name = "waited reads"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._versions: dict[bytes, list[tuple[int, int]]] = {}
        """Of each key (revision, mod revision from then on; 0 where there is no such key), rising."""

    def committed(self, events: RevisionEvents) -> None:
        for event in events.events:
            there = 0 if event.delete else events.revision
            self._versions.setdefault(event.kv.key, []).append((events.revision, there))

    def restored(self, base: Base) -> None:
        for events in base.past:
            self.committed(events)

    def waited(self, host: Host, revision: int, key: bytes, item: Item | None) -> None:
        versions = [(0, 0), *self._versions.get(key, [])]
        before = [there for at, there in versions if at <= revision]
        right = {before[-1], *(there for at, there in versions if at > revision)}
        shown = 0 if item is None else item.mod_revision
        if shown not in right:
            self.fail(
                f"a reader at {host.id} as of revision {revision}, or later, is shown {key!r} as of {shown}, "
                f"and it was {before[-1]} then"
            )
