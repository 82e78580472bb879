"""The segments of a node: a component that follows their assignments, and the `Resources` of its recovery.

Guarantees, and why they hold:
- A local segment that is not assigned in its version is removed; an assigned segment that is not local is fetched. At
  start, recovery does this by its stored plan (`recovery/eviction.py`). A running node makes a plan of the same kind
  whenever an assignment changes. Thus a crash midway needs no special handling.
- A copy that is no longer assigned is removed only after its announcement is withdrawn (`leased_announcements.py`) and
  its readers have ended. At start, recovery keeps unassigned copies that queries may count on, also those of segments
  that this node has handed off since the revision of its vault; the running node withdraws and removes them.
- A segment that cannot be fetched does not block the node: it is reported as missing, with the reason, and retried.
- Recovery and this component never change the files at the same time.
- An expired segment (`is_expired`) is not fetched and does not count as missing. Only retention removes it, by rules
  that it reads through the fence (`retention_worker.py`), so a stale rule can at most delay a fetch. A segment in the
  trash that is needed again is restored from there.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from palisade.catalog.errors import DamagedRow
from palisade.catalog.segment import SegmentRecord
from palisade.recovery.errors import ResourceMissing
from palisade.recovery.eviction import plan_eviction
from palisade.recovery.eviction_plan import EvictionAction, Step
from palisade.recovery.lifecycle import Component
from palisade.recovery.listeners import Listeners, Notification
from palisade.segments.announcements import is_needed
from palisade.segments.holder_ports import Announcements, NoRetention, Places, SegmentRetention, Unannounced
from palisade.segments.names import Wanted, name_below, own_prefix, segment_named, wanted_of
from palisade.segments.readers import Readers
from palisade.segments.segment_store import SegmentStore
from palisade.segments.sources import fetch
from palisade.vault.change import Item
from palisade.vault.errors import VaultError
from palisade.vault.vault import Vault
from palisade.wire.segment_errors import BadSegment, FolderUnreadable, NoSuchSegment, NotRemoved, SegmentError

log = logging.getLogger(__name__)

RETRY_MIN_S, RETRY_MAX_S = 1.0, 60.0
FETCHES = 4
"""Number of concurrent fetches of a running node."""
LOG_EVERY_S = 5.0
"""Interval of progress lines in the log."""


@dataclass(slots=True)
class Tally:
    """Counts since the start of the process. `trouble`: the last error by segment."""

    fetched: int = 0
    evicted: int = 0
    trashed: int = 0
    purged: int = 0
    restored: int = 0
    trouble: dict[str, str] = field(default_factory=dict)


class SegmentHolder(Component):
    """A component and a `recovery.ports.Resources`. Both need a vault: call `on` first."""

    def __init__(
        self,
        node: str,
        segment_store: SegmentStore,
        places: Places,
        listeners: Listeners,
        announcements: Announcements | None = None,
        retention: SegmentRetention | None = None,
    ) -> None:
        self.node = node
        self.segment_store = segment_store
        self.tally = Tally()
        self.wanted: dict[str, Wanted] = {}
        self.announcements: Announcements = announcements or Unannounced()
        self.retention: SegmentRetention = retention or NoRetention()
        self.readers = Readers()
        self._places = places
        self._listeners = listeners
        self._prefix = own_prefix(node)
        self._vault: Vault | None = None
        self._scanned = False
        self._files = asyncio.Lock()
        self._wakeup = asyncio.Event()

    def on(self, vault: Vault) -> SegmentHolder:
        self._vault = vault
        return self

    @property
    def vault(self) -> Vault:
        if self._vault is None:
            raise RuntimeError("no vault: the node has not started")
        return self._vault

    @property
    def revision(self) -> int:
        """LV; 0 before the node has started."""
        return self._vault.revision if self._vault is not None else 0

    # A component on the vault.

    async def start(self) -> None:
        if not self._scanned:
            await self.local()
        self.wanted = self.assignments()
        self._listeners.listen("segments", self._on_change, below=self._prefix)

    def _on_change(self, notification: Notification) -> None:
        """Receives single revisions and differences (leaps, snapshots). Never waits."""
        for event in notification.events:
            if event.key.startswith(self._prefix):
                self._update(event.key, event.item)

    def _update(self, key: bytes, item: Item | None) -> None:
        try:
            name = name_below(self._prefix, key)
            self.wanted.pop(name, None)
            if item is not None:
                self.wanted[name] = wanted_of(item.value)
        except BadSegment as error:
            log.warning("invalid assignment skipped: key=%r error=%s", key, error)
        self._wakeup.set()

    async def run(self) -> None:
        pause = RETRY_MIN_S
        while True:
            self._wakeup.clear()
            before = self.tally.fetched
            done = await self._settle()
            pause = RETRY_MIN_S if self.tally.fetched > before else min(2 * pause, RETRY_MAX_S)
            try:
                async with asyncio.timeout(None if done else pause):
                    await self._wakeup.wait()
                pause = RETRY_MIN_S
            except TimeoutError:
                pass

    async def _settle(self) -> bool:
        """One pass that removes and fetches segments. Returns whether the local segments match the assignments."""
        await self._clear_trash()
        plan = plan_eviction(0, self.segment_store.versions(), self._expected(self.wanted))
        fetches = deque(step for step in plan.steps if step.action is EvictionAction.FETCH)
        for step in plan.steps:
            if step.action is EvictionAction.EVICT:
                await self._try(step)
        progress = HolderProgress(len(fetches), asyncio.get_running_loop().time)
        async with asyncio.TaskGroup() as group:
            for _ in range(FETCHES):
                group.create_task(self._fetch_some(fetches, progress))
        self._forget_what_is_over()
        async with self._files:
            await self.segment_store.remember()
        return not self.tally.trouble and not any(self._is_open(step.name) for step in plan.steps)

    def _forget_what_is_over(self) -> None:
        self.tally.trouble = {name: why for name, why in self.tally.trouble.items() if self._is_open(name)}

    async def _clear_trash(self) -> None:
        """Purge trashed segments that are not assigned here any more."""
        for name in [name for name in self.segment_store.trashed if self._is_open(name)]:
            try:
                async with self._files:
                    await self.segment_store.purge(name, partial(self._is_open, name))
            except SegmentError as error:
                self._note_trouble(name, error)

    async def _fetch_some(self, fetches: deque[Step], progress: HolderProgress) -> None:
        while fetches:
            await self._try(fetches.popleft())
            progress.one_done()

    async def _try(self, step: Step) -> None:
        """Execute a step if the current assignment still requires it."""
        wanted = self.wanted.get(step.name)
        try:
            if step.action is EvictionAction.EVICT and not self._belongs(step.name):
                await self._withdraw_and_evict(step.name)
            elif step.action is EvictionAction.FETCH and wanted is not None and not self.is_expired(step.name):
                await self._bring(step.name, wanted)
        except SegmentError as error:
            self._note_trouble(step.name, error)

    async def _withdraw_and_evict(self, name: str) -> None:
        if name not in self.segment_store.held or not await self.announcements.withdraw(
            name, self.vault, even_if_needed=False
        ):
            return
        try:
            await self.readers.until_none(name)
            if not self._belongs(name):
                await self.evict(name)
        finally:
            self.announcements.removed(name)

    def _note_trouble(self, name: str, error: SegmentError) -> None:
        if self.tally.trouble.get(name) != str(error):
            log.warning("%s", error)
        self.tally.trouble[name] = str(error)

    def is_expired(self, name: str) -> bool:
        return self.retention.is_expired(name, self.vault)

    def _expected(self, assigned: Mapping[str, Wanted]) -> dict[str, str]:
        """Digests by name of the segments to have locally. An expired one only counts if it is local."""
        return {
            name: wanted.digest
            for name, wanted in assigned.items()
            if self.segment_store.has(name, wanted.digest) or not self.is_expired(name)
        }

    def _belongs(self, name: str) -> bool:
        """Whether the local version is the assigned one."""
        wanted = self.wanted.get(name)
        return wanted is not None and self.segment_store.has(name, wanted.digest)

    def _is_open(self, name: str) -> bool:
        if name in self.segment_store.trashed:
            return self.wanted.get(name) != self.segment_store.trashed[name]
        is_missing = name in self.wanted and not self.is_expired(name)
        return (is_missing or name in self.segment_store.held) and not self._belongs(name)

    # `recovery.ports.Resources`.

    async def local(self) -> dict[str, str]:
        """Raises FolderUnreadable."""
        async with self._files:
            try:
                await self.segment_store.scan()
            except OSError as error:
                raise FolderUnreadable(
                    f"cannot read the folder of the segments: {error}; check its permissions, and whether its disk is "
                    "mounted"
                ) from error
            self._scanned = True
        return self.segment_store.versions()

    async def assigned(self) -> dict[str, str]:
        """Includes the unassigned copies that stay: the running node withdraws and removes them."""
        found = self._expected(self.assignments())
        spare = {name: held.digest for name, held in self.segment_store.held.items() if name not in found}
        return found | {name: digest for name, digest in spare.items() if self._stays(name)}

    def is_spare(self, name: str) -> bool:
        """Whether this node has a copy that is not assigned to it."""
        return name in self.segment_store.held and name not in self.wanted

    def _stays(self, name: str) -> bool:
        """Whether recovery keeps an unassigned copy. It also keeps one whose record is damaged, and one whose record
        has no digest in the vault: this node was about to hand that segment off, so queries may count on the copy by
        now.
        """
        try:
            record = self.record(name)
            return record is not None and (record.is_growing or self._counts(name, record))
        except DamagedRow as error:
            log.warning("copy kept, its record is damaged: name=%s error=%s", name, error)
            return self.segment_store.is_whole(name)

    def may_count(self, name: str) -> bool:
        """Whether queries may count on the local copy: they need the segment, and the copy is that of the record.

        Raises DamagedRow."""
        record = self.record(name)
        return record is not None and self._counts(name, record)

    def _counts(self, name: str, record: SegmentRecord) -> bool:
        return is_needed(record) and self.segment_store.fits(name, record.digest, record.rows)

    def record(self, name: str) -> SegmentRecord | None:
        """As of the vault. Raises DamagedRow, and VaultError while a running node gets a snapshot."""
        key = segment_named(name).key
        item = self.vault.get(key)
        return None if item is None else SegmentRecord.from_bytes(key, item.value)

    def assignments(self) -> dict[str, Wanted]:
        """The assignments of this node in its vault; invalid ones are skipped and logged."""
        found: dict[str, Wanted] = {}
        for item in self.vault.range(self._prefix, self._prefix[:-1] + b"0"):
            try:
                found[name_below(self._prefix, item.key)] = wanted_of(item.value)
            except BadSegment as error:
                log.warning("invalid assignment skipped: key=%r error=%s", item.key, error)
        return found

    async def evict(self, name: str) -> None:
        async with self._files:
            await self.segment_store.drop(name)
        self.tally.evicted += 1
        self._wakeup.set()

    async def fetch(self, name: str, version: str) -> None:
        """Raises ResourceMissing if it cannot be fetched; the running node retries."""
        wanted = self.assignments().get(name)
        if wanted is None or wanted.digest != version:
            return
        try:
            await self._bring(name, wanted)
        except SegmentError as error:
            self._note_trouble(name, error)
            raise ResourceMissing(str(error)) from error

    async def _bring(self, name: str, wanted: Wanted) -> None:
        if self.segment_store.has(name, wanted.digest) or await self._restored(name, wanted):
            return
        content = await fetch(name, wanted, self._places.sources(name, wanted, self.vault), self.segment_store.verifier)
        async with self._files:
            await self.segment_store.put(name, wanted, content, synced=self._has_no_origin(name))
        self.announcements.changed()
        self.tally.fetched += 1
        self.tally.trouble.pop(name, None)

    def _has_no_origin(self, name: str) -> bool:
        """Whether data nodes have the only copies, because an ingester has handed off the segment."""
        try:
            record = self.record(name)
        except (DamagedRow, VaultError):
            return True
        return record is not None and bool(record.ingester) and not record.url

    async def keep(self, name: str, wanted: Wanted, content: bytes) -> None:
        """Store a verified copy of this node's own rows; synced on return. Raises NotFetched."""
        async with self._files:
            await self.segment_store.put(name, wanted, content, synced=True)
        self.announcements.changed()

    async def _restored(self, name: str, wanted: Wanted) -> bool:
        """Restore it from the trash. False if it is not there in this version."""
        if self.segment_store.trashed.get(name) != wanted:
            return False
        async with self._files:
            await self.segment_store.restore(name)
        self.announcements.changed()
        self.tally.restored += 1
        self.tally.trouble.pop(name, None)
        log.info("segment restored from the trash: name=%s", name)
        return True

    # Used by retention.

    async def trash(self, name: str, still: Callable[[], bool]) -> bool:
        """Calls `still` directly before moving the file. Whether it was moved. Raises NotRemoved, and as `still`.

        The announcement is withdrawn first, even if the copy is the last one, because the segment has expired.
        """
        if not await self.announcements.withdraw(name, self.vault, even_if_needed=True):
            raise NotRemoved(f"cannot withdraw the announcement of segment {name} now; retrying")
        try:
            await self.readers.until_none(name)
            async with self._files:
                done = name in self.segment_store.held and await self.segment_store.trash(name, still)
        finally:
            self.announcements.removed(name)
        self.tally.trashed += done
        return done

    async def purge(self, name: str, still: Callable[[], bool]) -> bool:
        """Like `trash`, but removes a trashed segment permanently."""
        async with self._files:
            done = name in self.segment_store.trashed and await self.segment_store.purge(name, still)
        self.tally.purged += done
        return done

    def wake(self) -> None:
        """Call when the set of expired segments may have changed."""
        self._wakeup.set()

    # Used by the API.

    async def read_recorded(self, name: str) -> tuple[bytes, Wanted]:
        """Reads the version of the record, which never changes, and no other. Raises NoSuchSegment, DamagedRow."""
        record = self.record(name) if name in self.segment_store.held else None
        if record is None:
            raise NoSuchSegment(f"this node does not have segment {name}, or its record; use another node")
        return await self.read(name, record.digest)

    async def read(self, name: str, digest: str | None) -> tuple[bytes, Wanted]:
        """Raises NoSuchSegment. A damaged segment is fetched again immediately."""
        before = self.segment_store.held.get(name)
        try:
            with self.readers.reading(name):
                return await self.segment_store.read(name, digest)
        except NoSuchSegment:
            if self.segment_store.held.get(name) is not before:
                self._wakeup.set()
                self.announcements.changed()
            raise


class HolderProgress:
    """Logs the progress of a long pass."""

    def __init__(self, total: int, now: Callable[[], float]) -> None:
        self._total, self._done, self._now = total, 0, now
        self._logged_at = now()

    def one_done(self) -> None:
        self._done += 1
        if self._now() >= self._logged_at + LOG_EVERY_S:
            self._logged_at = self._now()
            log.info("segment fetches attempted: done=%d total=%d", self._done, self._total)


def missing(wanted: Mapping[str, Wanted], segment_store: SegmentStore) -> list[str]:
    """Names of the segments that are assigned and not local in that version, sorted."""
    return sorted(name for name, each in wanted.items() if not segment_store.has(name, each.digest))
