"""Once a change is released, no valid fence page belongs to a vault that would serve the replaced value (F3 to F5).

Observed from outside. At every release of any leader: all pages, also of nodes that are dead, paused or isolated, each
by the clock of its machine. And whenever a node has changed its page or its vault: that page, and the latest released
change of each key. A vault may be served if it has applied the change, or has marked its key.
"""

from __future__ import annotations

from palisade.base.long_keys import stored_key
from palisade.metastore.results import RevisionEvents
from palisade.vault.fence_page import COPY_BYTES, unpack_fence
from palisade.vault.staging import revision_of
from palisade.vault.tables import VaultTable
from palisade.vault.vault import POSITION, unpack_position
from tests.sim.node import Host
from tests.sim.world import Checker, World

STRICT = (b"s/", b"palisade/")
KEPT = 200


class LeaseSafety(Checker):
    name = "lease safety"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._changes: list[tuple[int, bytes]] = []
        self._released: dict[str, int] = {}
        self._unreleased: list[tuple[int, bytes]] = []
        self._newest: dict[bytes, int] = {}
        """The latest change of each key that any leader has released."""
        self._latest = 0
        """The greatest of these revisions."""

    def committed(self, events: RevisionEvents) -> None:
        strict = [(events.revision, event.kv.key) for event in events.events if event.kv.key.startswith(STRICT)]
        self._changes += strict
        self._unreleased += strict
        del self._changes[:-KEPT]

    def turned(self, host: Host) -> None:
        if not host.follows:
            self._hear(host)
        if self._newest:
            self._look(host, self._newest, self._latest)

    def _hear(self, host: Host) -> None:
        core = host.node.fencing.lease_server.core
        released = core.rr if core.leads and core.rr is not None else 0
        before = self._released.get(host.id, 0)
        if released == before:
            return
        self._released[host.id] = released
        fresh = [change for change in self._changes if before < change[0] <= released and self._counts(change)]
        if fresh:
            self.world.count("release: of strict changes")
            for other in self.world.hosts.values():
                self._look(other, {key: revision for revision, key in fresh}, released)
        self._keep(released)

    def _keep(self, released: int) -> None:
        for revision, key in self._unreleased:
            if revision <= released and self._counts((revision, key)):
                self._newest[key] = self._latest = revision
        self._unreleased = [change for change in self._unreleased if change[0] > released]

    def _counts(self, change: tuple[int, bytes]) -> bool:
        return not change[1].startswith(b"s/") or 0 < self.world.strict_from < change[0]

    def _look(self, host: Host, changes: dict[bytes, int], released: int) -> None:
        page = unpack_fence(bytes(host.disk.page[:COPY_BYTES])) if host.starts and any(host.disk.page) else None
        now = host.offset_s + host.rate * self.world.simulation.now
        if page is None or not page.serves(int(now * 1e9), host.disk.boot):
            return
        backend = host.disk.backend
        lv = unpack_position(backend.get(VaultTable.META, POSITION)).revision
        lineage = host.disk.vault_lineage
        if lineage is not None and lineage.generation != self.world.generation:
            self.fail(
                f"RR is {released} of generation {self.world.generation}, and the page of {host.id} is up for "
                f"{page.deadline_ns / 1e9 - now:.3f} s more with a vault of generation {lineage.generation}"
            )
        if lv >= released:
            return
        for key, revision in changes.items():
            if lv >= revision:
                continue
            marked = backend.get(VaultTable.PENDING, stored_key(key))
            if marked is None or revision_of(marked) < revision:
                self.fail(
                    f"RR is {released}, and the page of {host.id} is up for {page.deadline_ns / 1e9 - now:.3f} s "
                    f"more with LV {lv} and no mark for {key!r} at {revision}"
                )
