"""Announces the copies of a data node by leased keys, and withdraws them before they are removed (issue 17).

Guarantees, and why they hold:
- Only complete and verified copies are announced: those that the shelf holds with the digest of the record. A damaged
  copy is withdrawn when that is found.
- A copy is announced again after its key was deleted, whatever deleted it. A key whose write or removal has an unknown
  outcome counts as not announced, and `announced` has only keys of the present lease.
- No announcement commits after the withdrawal that follows it, however late an attempt arrives (`settled_writes.py`).
- A copy is removed only after its withdrawal is released, and while queries may count on it only if every other
  assigned node announces it (`announcements.py`).
- The announcements end with the lease of the node: after its death, or when it cannot reach the cluster. A node that
  returns grants another lease and announces again.
- An announcement of a segment that has no record is refused, because the transaction compares the record.
- A realtime segment that grows is announced at the revision of its record that the vault has (`realtime.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable

from palisade.base.clock import SystemClock
from palisade.base.errors import PalisadeError
from palisade.catalog.errors import DamagedRow
from palisade.catalog.segment import ANNOUNCED, RECORDS, ROOT, Segment, SegmentRecord, announced_by
from palisade.metastore.errors import LeaseNotFound
from palisade.metastore.requests import Compare, CompareResult, CompareTarget, DeleteRange, Put, prefix_end
from palisade.metastore.results import TxnResult
from palisade.recovery.lifecycle import Component
from palisade.recovery.listeners import Listeners, Notification
from palisade.segments.announcements import AnnouncementStore, Guard, is_known, withdrawal_guard
from palisade.segments.holder import SegmentHolder
from palisade.segments.names import ASSIGNMENTS, segment_named
from palisade.vault.errors import VaultError
from palisade.vault.vault import Vault
from palisade.wire.segment_errors import NotIngesting

log = logging.getLogger(__name__)
_boot_clock = SystemClock()

TTL_S = 10.0
BATCH = 100
RETRY_S = 1.0
DRIFT = 0.01
"""By how much clocks may run at different rates (`fencing/timing.py`)."""


def nothing_grows() -> set[str]:
    """Of a node without realtime segments."""
    return set()


class Announcer(Component):
    """A component above the holder; the holder asks it before it removes a copy (`holder.Announcements`)."""

    def __init__(
        self,
        holder: SegmentHolder,
        store: AnnouncementStore,
        listeners: Listeners,
        ttl_s: float = TTL_S,
        now: Callable[[], float] = _boot_clock.now,
    ) -> None:
        self.holder = holder
        self.growing: Callable[[], set[str]] = nothing_grows
        """The realtime segments that this node has to announce for their logs."""
        self.announced: dict[str, int] = {}
        """By the present lease, with the revision of the write."""
        self.trouble: str | None = "not started"
        """Why the copies are not announced; None if they are."""
        self._store, self._listeners, self._ttl_s = store, listeners, ttl_s
        self._now = now
        self._lease = 0
        self._valid_until = 0.0
        """Of the lease, by the clock of this node; counted from the send time of its last renewal."""
        self._notified = 0
        """The vault reaches this revision only after the notification, so a pass before that is repeated."""
        self._removing: set[str] = set()
        self._writes = asyncio.Lock()
        self._wakeup = asyncio.Event()
        holder.announcements = self

    async def start(self) -> None:
        self._listeners.listen("announcer", self._on_change, below=ROOT)

    def _on_change(self, notification: Notification) -> None:
        """Changes of other segments have no effect: a pass visits every copy. Never waits."""
        self._notified = notification.revision
        own = ANNOUNCED + self.holder.node.encode() + b"/"
        for key, _, item, _ in notification.events:
            if key.startswith(own) and (item is None or item.lease != self._lease or not self._is_local(key)):
                self.changed()
            elif (name := name_in_key(key)) in self.holder.shelf.held:
                if key.startswith(RECORDS):
                    self.changed()
                if self.holder.is_spare(name):
                    self.holder.wake()

    def _is_local(self, key: bytes) -> bool:
        name = name_in_key(key)
        return (name in self.holder.shelf.held or name in self.growing()) and name not in self._removing

    async def stop(self) -> None:
        await self._store.close()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._renew())
            group.create_task(self._announce())

    async def _renew(self) -> None:
        while True:
            renewed = await self.renew()
            await asyncio.sleep(self._ttl_s / 4 if renewed else min(RETRY_S, self._ttl_s / 4))

    async def _announce(self) -> None:
        while True:
            self._wakeup.clear()
            done = await self.announce()
            try:
                async with asyncio.timeout(None if done else RETRY_S):
                    await self._wakeup.wait()
            except TimeoutError:
                pass

    async def renew(self) -> bool:
        """Renew the lease of the node, or get another one. Whether it has one."""
        sent = self._now()
        try:
            lease = await self._store.lease(self._lease, round(self._ttl_s * 1000))
        except LeaseNotFound:
            log.warning("lease of the announcements lost, announcing again: lease=%d", self._lease)
            self._lost()
            return False
        except PalisadeError as error:
            self._note(str(error))
            return False
        if lease != self._lease:
            self._lost()
            self._lease = lease
        self._valid_until = sent + self._ttl_s * (1 - 2 * DRIFT)
        return True

    def _lost(self) -> None:
        self._lease = 0
        self.announced.clear()
        self.changed()

    async def announce(self) -> bool:
        """One pass. Whether exactly the copies that this node has are announced."""
        async with self._writes:
            lease = self._lease
            if not lease:
                return False
            try:
                is_current = self.holder.vault.revision >= self._notified
                stored = self._stored()
                wanted = self._present(stored)
                await self._delete((stored | self.announced.keys()) - wanted)
                for some in batches(sorted(self._known(wanted - self._confirmed(stored)))):
                    await self._put(lease, some)
            except (PalisadeError, VaultError) as error:
                self._note(str(error))
                if isinstance(error, LeaseNotFound) and lease == self._lease:
                    self._lost()
                return False
        self._note(None)
        return is_current

    def _present(self, stored: set[str]) -> set[str]:
        """The verified copies that queries may count on. A damaged record leaves that open, and changes nothing."""
        found = self.growing() - self._removing
        for name in self.holder.shelf.held.keys() - self._removing:
            try:
                if self.holder.may_count(name):
                    found.add(name)
            except DamagedRow as error:
                log.warning("announcement of a copy unchanged: name=%s error=%s", name, error)
                if name in stored and self.holder.shelf.is_whole(name):
                    found.add(name)
        return found

    def _known(self, names: set[str]) -> set[str]:
        """Those whose records the vault has: a growing one that was just opened is announced already."""
        held = self.holder.shelf.held
        return {name for name in names if name in held or self.holder.vault.get(segment_named(name).key) is not None}

    def _confirmed(self, stored: set[str]) -> set[str]:
        """The announced names without those that the vault does not have at a revision after their write."""
        revision = self.holder.vault.revision
        return {name for name, written in self.announced.items() if name in stored or revision < written}

    def _stored(self) -> set[str]:
        """What this node announces according to its vault, by an earlier lease too."""
        prefix = ANNOUNCED + self.holder.node.encode() + b"/"
        found = set()
        for item in self.holder.vault.range(prefix, prefix_end(prefix)):
            try:
                found.add(str(announced_by(item.key)[1]))
            except DamagedRow as error:
                log.warning("%s", error)
        return found

    async def _put(self, lease: int, names: Collection[str]) -> None:
        segments = [segment_named(name) for name in names]
        puts = [Put(segment.announcement_key(self.holder.node), b"", lease) for segment in segments]
        growing = self.growing()
        compares = [self._unchanged(each) if str(each) in growing else is_known(each) for each in segments]
        done = await self._store.announce(compares, puts)
        if done.succeeded:
            if lease == self._lease:
                self.announced.update(dict.fromkeys(names, done.revision))
        elif len(names) > 1:
            for name in names:
                await self._put(lease, [name])
        else:
            log.warning("announcement refused, the segment is unknown or has changed: name=%s", *names)

    def _unchanged(self, segment: Segment) -> Compare:
        """A segment that grows may have been given up since."""
        item = self.holder.vault.get(segment.key)
        if item is None:
            return is_known(segment)
        return Compare(segment.key, CompareTarget.MOD, CompareResult.EQUAL, item.mod_revision)

    async def _delete(self, names: Iterable[str]) -> None:
        for some in batches(sorted(names)):
            for name in some:
                self.announced.pop(name, None)
            await self._store.announce((), [DeleteRange(self._key(name)) for name in some])

    def _key(self, name: str) -> bytes:
        return segment_named(name).announcement_key(self.holder.node)

    # Used by the holder.

    def changed(self) -> None:
        self._wakeup.set()

    async def withdraw(self, name: str, *, even_if_needed: bool) -> bool:
        """Before the copy is removed. Whether no broker returns this node for it any more; then call `removed`."""
        async with self._writes:
            try:
                guard: Guard | None = () if even_if_needed else self._guard(name)
                if guard is None:
                    return False
                self.announced.pop(name, None)
                done = await self._store.announce(guard, [DeleteRange(self._key(name))])
            except (PalisadeError, VaultError) as error:
                self._note(str(error))
                return False
            if done.succeeded:
                self._removing.add(name)
            return done.succeeded

    def removed(self, name: str) -> None:
        self._removing.discard(name)
        self.changed()

    def state(self) -> tuple[int, str | None]:
        return len(self.announced), self.trouble

    # Used by the ingester (`realtime.LeasedWrites`).

    def has_lease(self) -> bool:
        return bool(self._lease) and self._now() < self._valid_until

    def is_announced(self, name: str) -> bool:
        return name in self.announced and name not in self._removing and self.has_lease()

    async def open(self, compare: Iterable[Compare], writes: Iterable[Put], name: str) -> TxnResult:
        async with self._writes:
            lease = self._lease
            if not self.has_lease():
                raise NotIngesting(f"node {self.holder.node} can announce nothing now: repeat")
            try:
                done = await self._store.announce(compare, [*writes, Put(self._key(name), b"", lease)])
            except LeaseNotFound as error:
                raise NotIngesting(f"node {self.holder.node} has lost its lease ({error}): repeat") from error
            if done.succeeded and lease == self._lease:
                self.announced[name] = done.revision
            return done

    async def write(self, compare: Iterable[Compare], writes: Iterable[Put | DeleteRange]) -> TxnResult:
        async with self._writes:
            return await self._store.announce(compare, writes)

    def _guard(self, name: str) -> Guard | None:
        vault, segment = self.holder.vault, segment_named(name)
        item = vault.get(segment.key)
        found = None if item is None else (SegmentRecord.from_bytes(segment.key, item.value), item.mod_revision)
        assigned, announced = nodes_of(vault, ASSIGNMENTS, name), nodes_of(vault, ANNOUNCED, name)
        return withdrawal_guard(self.holder.node, segment, found, assigned, announced)

    def _note(self, trouble: str | None) -> None:
        if trouble is not None and trouble != self.trouble:
            log.warning("copies not announced, retrying: error=%s", trouble)
        self.trouble = trouble


def nodes_of(vault: Vault, prefix: bytes, name: str) -> set[str]:
    """The nodes with this segment among the keys <prefix><node>/<segment>; one read for each node and segment."""
    found, start = set(), prefix
    while (item := next(vault.range(start, prefix_end(prefix)), None)) is not None:
        node = item.key.removeprefix(prefix).partition(b"/")[0]
        if vault.get(prefix + node + b"/" + name.encode()) is not None:
            found.add(node.decode("utf-8", "backslashreplace"))
        start = prefix_end(prefix + node + b"/")
    return found


def name_in_key(key: bytes) -> str:
    """The segment that a record, assignment or announcement is about; of other keys something that is no segment."""
    rest = key.removeprefix(RECORDS)
    if rest == key:
        rest = key.removeprefix(ASSIGNMENTS).removeprefix(ANNOUNCED).partition(b"/")[2]
    return rest.decode("utf-8", "backslashreplace")


def batches(names: list[str]) -> list[list[str]]:
    return [names[start : start + BATCH] for start in range(0, len(names), BATCH)]
