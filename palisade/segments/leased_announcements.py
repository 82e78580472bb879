"""The announcement keys of a data node: its lease, and every write below it, one at a time (issue 17).

The holder, the ingester and the announcer get this object in their constructors; it does not depend on them.

Guarantees, and why they hold:
- `announced` has only keys of the current lease. A key whose write or removal has an unknown outcome is not in it.
- No announcement commits after its withdrawal, even if an attempt was delayed (`settled_writes.py`).
- A copy that queries may count on is withdrawn only if every other assigned node announces it (`announcements.py`).
- The announcements end with the lease of the node: after its death, or when it cannot reach the cluster.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable

from palisade.base.clock import SystemClock
from palisade.base.errors import PalisadeError
from palisade.catalog.segment import ANNOUNCED, SegmentRecord
from palisade.metastore.errors import LeaseNotFound
from palisade.metastore.requests import Compare, DeleteRange, Put, prefix_end
from palisade.metastore.results import TxnResult
from palisade.segments.announcements import AnnouncementStore, Guard, withdrawal_guard
from palisade.segments.names import ASSIGNMENTS, segment_named
from palisade.vault.errors import VaultError
from palisade.vault.vault import Vault
from palisade.wire.segment_errors import NotIngesting

log = logging.getLogger(__name__)
_boot_clock = SystemClock()

TTL_S = 10.0
BATCH = 100
DRIFT = 0.01
"""Largest assumed difference of the rates of two clocks (`fencing/timing.py`)."""


class LeasedAnnouncements:
    """Also `holder_ports.Announcements` and `realtime.LeasedWrites`."""

    def __init__(
        self,
        node: str,
        store: AnnouncementStore,
        ttl_s: float = TTL_S,
        now: Callable[[], float] = _boot_clock.now,
    ) -> None:
        self.node = node
        self.ttl_s = ttl_s
        self.announced: dict[str, int] = {}
        """Announced under the current lease, with the revision of the write."""
        self.trouble: str | None = "not started"
        """Why the copies are not announced; None if they are."""
        self.lease = 0
        self.removing: set[str] = set()
        self.writes = asyncio.Lock()
        """Held during each write, and during a pass of the announcer."""
        self.wakeup = asyncio.Event()
        self._store, self._now = store, now
        self._valid_until = 0.0
        """End of the lease by the clock of this node, counted from the send time of its last renewal."""

    async def close(self) -> None:
        await self._store.close()

    async def renew(self) -> bool:
        """Renew the lease of the node, or get another one. Returns whether it has one."""
        sent = self._now()
        try:
            lease = await self._store.lease(self.lease, round(self.ttl_s * 1000))
        except LeaseNotFound:
            log.warning("lease of the announcements lost, announcing again: lease=%d", self.lease)
            self._lost()
            return False
        except PalisadeError as error:
            self.note(str(error))
            return False
        if lease != self.lease:
            self._lost()
            self.lease = lease
        self._valid_until = sent + self.ttl_s * (1 - 2 * DRIFT)
        return True

    def _lost(self) -> None:
        self.lease = 0
        self.announced.clear()
        self.changed()

    def failed(self, error: Exception, lease: int) -> None:
        """A write under `lease` was not done, or its outcome is unknown."""
        self.note(str(error))
        if isinstance(error, LeaseNotFound) and lease == self.lease:
            self._lost()

    def note(self, trouble: str | None) -> None:
        if trouble is not None and trouble != self.trouble:
            log.warning("copies not announced, retrying: error=%s", trouble)
        self.trouble = trouble

    # Used by the announcer, which holds `writes`.

    async def put(self, lease: int, names: Collection[str], compares: Iterable[Compare]) -> bool:
        """Whether the compares held. Raises the errors of the store."""
        done = await self._store.announce(compares, [Put(self._key(name), b"", lease) for name in names])
        if done.succeeded and lease == self.lease:
            self.announced.update(dict.fromkeys(names, done.revision))
        return done.succeeded

    async def delete(self, names: Iterable[str]) -> None:
        """Raises the errors of the store."""
        for some in batches(sorted(names)):
            for name in some:
                self.announced.pop(name, None)
            await self._store.announce((), [DeleteRange(self._key(name)) for name in some])

    def _key(self, name: str) -> bytes:
        return segment_named(name).announcement_key(self.node)

    # Used by the holder.

    def changed(self) -> None:
        self.wakeup.set()

    async def withdraw(self, name: str, vault: Vault, *, even_if_needed: bool) -> bool:
        """Call before a copy is removed. Returns True once no broker returns this node for it; then call `removed`."""
        async with self.writes:
            try:
                guard: Guard | None = () if even_if_needed else self._guard(name, vault)
                if guard is None:
                    return False
                self.announced.pop(name, None)
                done = await self._store.announce(guard, [DeleteRange(self._key(name))])
            except (PalisadeError, VaultError) as error:
                self.note(str(error))
                return False
            if done.succeeded:
                self.removing.add(name)
            return done.succeeded

    def _guard(self, name: str, vault: Vault) -> Guard | None:
        segment = segment_named(name)
        item = vault.get(segment.key)
        found = None if item is None else (SegmentRecord.from_bytes(segment.key, item.value), item.mod_revision)
        assigned, announced = nodes_of(vault, ASSIGNMENTS, name), nodes_of(vault, ANNOUNCED, name)
        return withdrawal_guard(self.node, segment, found, assigned, announced)

    def removed(self, name: str) -> None:
        self.removing.discard(name)
        self.changed()

    def state(self) -> tuple[int, str | None]:
        return len(self.announced), self.trouble

    # Used by the ingester.

    def has_lease(self) -> bool:
        return bool(self.lease) and self._now() < self._valid_until

    def is_announced(self, name: str) -> bool:
        return name in self.announced and name not in self.removing and self.has_lease()

    async def open(self, compare: Iterable[Compare], writes: Iterable[Put], name: str) -> TxnResult:
        async with self.writes:
            lease = self.lease
            if not self.has_lease():
                raise NotIngesting(f"node {self.node} can announce nothing now: retry")
            try:
                done = await self._store.announce(compare, [*writes, Put(self._key(name), b"", lease)])
            except LeaseNotFound as error:
                raise NotIngesting(f"node {self.node} has lost its lease ({error}): retry") from error
            if done.succeeded and lease == self.lease:
                self.announced[name] = done.revision
            return done

    async def write(self, compare: Iterable[Compare], writes: Iterable[Put | DeleteRange]) -> TxnResult:
        async with self.writes:
            return await self._store.announce(compare, writes)


def nodes_of(vault: Vault, prefix: bytes, name: str) -> set[str]:
    """The nodes that have a key <prefix><node>/<segment> for this segment; one read for each node and segment."""
    found, start = set(), prefix
    while (item := next(vault.range(start, prefix_end(prefix)), None)) is not None:
        node = item.key.removeprefix(prefix).partition(b"/")[0]
        if vault.get(prefix + node + b"/" + name.encode()) is not None:
            found.add(node.decode("utf-8", "backslashreplace"))
        start = prefix_end(prefix + node + b"/")
    return found


def batches(names: list[str]) -> list[list[str]]:
    return [names[start : start + BATCH] for start in range(0, len(names), BATCH)]
