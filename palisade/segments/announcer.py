"""Announces the copies of a data node by leased keys, and ends the announcements of copies that are gone (issue 17).

Guarantees, and why they hold:
- Only complete and verified copies are announced: those in the segment store that have the digest of the record. A copy
  that is found to be damaged is withdrawn.
- If the key of a copy is deleted, for whatever reason, the copy is announced again. A node that has a new lease
  announces all of its copies again. The guarantees of these writes: `leased_announcements.py`.
- A copy is removed only after its withdrawal is released: the holder withdraws it first. No pass announces it again
  before the removal has ended.
- An announcement of a segment that has no record is refused, because the transaction compares the record.
- The announcement of a growing realtime segment compares the revision that its record has in the vault
  (`realtime.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from palisade.base.errors import PalisadeError
from palisade.catalog.errors import DamagedRow
from palisade.catalog.segment import ANNOUNCED, RECORDS, ROOT, Segment, announced_by
from palisade.metastore.requests import Compare, CompareResult, CompareTarget, prefix_end
from palisade.recovery.lifecycle import Component
from palisade.recovery.listeners import Listeners, Notification
from palisade.segments.announcements import is_known
from palisade.segments.holder import SegmentHolder
from palisade.segments.leased_announcements import LeasedAnnouncements, batches
from palisade.segments.names import ASSIGNMENTS, segment_named
from palisade.vault.errors import VaultError

log = logging.getLogger(__name__)

RETRY_S = 1.0


def nothing_grows() -> set[str]:
    """Of a node without realtime segments."""
    return set()


class Announcer(Component):
    """A component above the holder and the ingester. `growing`: the realtime segments that this node has to announce
    for their logs."""

    def __init__(
        self,
        holder: SegmentHolder,
        own: LeasedAnnouncements,
        listeners: Listeners,
        growing: Callable[[], set[str]] = nothing_grows,
    ) -> None:
        self.holder, self.own = holder, own
        self._listeners, self._growing = listeners, growing
        self._notified = 0
        """The vault reaches this revision after the notification; a pass that ran earlier is repeated."""

    async def start(self) -> None:
        self._listeners.listen("announcer", self._on_change, below=ROOT)

    def _on_change(self, notification: Notification) -> None:
        """Ignores changes of other segments, because a pass visits every copy. Never waits."""
        self._notified = notification.revision
        own = ANNOUNCED + self.holder.node.encode() + b"/"
        for key, _, item, _ in notification.events:
            if key.startswith(own) and (item is None or item.lease != self.own.lease or not self._is_local(key)):
                self.own.changed()
            elif (name := name_in_key(key)) in self.holder.segment_store.held:
                if key.startswith(RECORDS):
                    self.own.changed()
                if self.holder.is_spare(name):
                    self.holder.wake()

    def _is_local(self, key: bytes) -> bool:
        """False also while the vault cannot be read because it receives a snapshot; a pass decides later."""
        name = name_in_key(key)
        try:
            return (name in self.holder.segment_store.held or name in self._growing()) and name not in self.own.removing
        except VaultError:
            return False

    async def stop(self) -> None:
        await self.own.close()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._renew())
            group.create_task(self._announce())

    async def _renew(self) -> None:
        while True:
            renewed = await self.own.renew()
            await asyncio.sleep(self.own.ttl_s / 4 if renewed else min(RETRY_S, self.own.ttl_s / 4))

    async def _announce(self) -> None:
        while True:
            self.own.wakeup.clear()
            done = await self.announce()
            try:
                async with asyncio.timeout(None if done else RETRY_S):
                    await self.own.wakeup.wait()
            except TimeoutError:
                pass

    async def announce(self) -> bool:
        """One pass. Returns whether the announced copies are exactly those that this node has."""
        async with self.own.writes:
            lease = self.own.lease
            if not lease:
                return False
            try:
                is_current = self.holder.vault.revision >= self._notified
                stored = self._stored()
                wanted = self._present(stored)
                await self.own.delete((stored | self.own.announced.keys()) - wanted)
                for some in batches(sorted(self._known(wanted - self._confirmed(stored)))):
                    await self._put(lease, some)
            except (PalisadeError, VaultError) as error:
                self.own.failed(error, lease)
                return False
        self.own.note(None)
        return is_current

    def _present(self, stored: set[str]) -> set[str]:
        """The verified copies that queries may count on. If a record is damaged, its announcement is not changed."""
        found = self._growing() - self.own.removing
        for name in self.holder.segment_store.held.keys() - self.own.removing:
            try:
                if self.holder.may_count(name):
                    found.add(name)
            except DamagedRow as error:
                log.warning("announcement of a copy unchanged: name=%s error=%s", name, error)
                if name in stored and self.holder.segment_store.is_whole(name):
                    found.add(name)
        return found

    def _known(self, names: set[str]) -> set[str]:
        """The growing segments whose records are in the vault. One that was just opened is announced already."""
        held = self.holder.segment_store.held
        return {name for name in names if name in held or self.holder.vault.get(segment_named(name).key) is not None}

    def _confirmed(self, stored: set[str]) -> set[str]:
        """The announced names, except those whose key is missing in a vault that is newer than their write."""
        revision = self.holder.vault.revision
        return {name for name, written in self.own.announced.items() if name in stored or revision < written}

    def _stored(self) -> set[str]:
        """The announcements of this node in its vault, also those of an earlier lease."""
        prefix = ANNOUNCED + self.holder.node.encode() + b"/"
        found = set()
        for item in self.holder.vault.range(prefix, prefix_end(prefix)):
            try:
                found.add(str(announced_by(item.key)[1]))
            except DamagedRow as error:
                log.warning("%s", error)
        return found

    async def _put(self, lease: int, names: Collection[str]) -> None:
        """Checks each segment again with the record that is compared: it may have changed since the pass began."""
        growing = self._growing()
        compares = {name: found for name in names if (found := self._compare(name, growing)) is not None}
        if not compares or await self.own.put(lease, compares.keys(), compares.values()):
            return
        if len(names) > 1:
            for name in names:
                await self._put(lease, [name])
        else:
            log.warning("announcement refused, the segment is unknown or has changed: name=%s", *names)

    def _compare(self, name: str, growing: set[str]) -> Compare | None:
        """None if this node must not announce it any more, such as a growing segment that was given up."""
        segment = segment_named(name)
        if name in growing:
            return self._unchanged(segment)
        try:
            return is_known(segment) if self.holder.may_count(name) else None
        except DamagedRow:
            return is_known(segment)

    def _unchanged(self, segment: Segment) -> Compare:
        """A growing segment may have been given up meanwhile."""
        item = self.holder.vault.get(segment.key)
        if item is None:
            return is_known(segment)
        return Compare(segment.key, CompareTarget.MOD, CompareResult.EQUAL, item.mod_revision)


def name_in_key(key: bytes) -> str:
    """The segment's name in the key of a record, assignment or announcement; for other keys, not such a name."""
    rest = key.removeprefix(RECORDS)
    if rest == key:
        rest = key.removeprefix(ASSIGNMENTS).removeprefix(ANNOUNCED).partition(b"/")[2]
    return rest.decode("utf-8", "backslashreplace")
