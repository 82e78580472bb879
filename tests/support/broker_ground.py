"""A broker on a vault with a fence page, for tests that control each step. `sim/segmenting.py` has any order."""

from __future__ import annotations

import asyncio

from palisade.metastore.requests import Txn
from palisade.recovery.listeners import Listeners, Notification
from palisade.segments.broker import SegmentBroker
from palisade.segments.broker_view import OnMissing, SegmentAnswer
from palisade.service.fenced_reads import FencedReads
from palisade.vault.change import VaultEvent, events_of
from palisade.vault.fence_page import BOOT_BYTES, FENCE_BYTES, FencePage
from palisade.vault.memory_tables import MemoryBackend
from palisade.vault.vault import Vault
from tests.support.segment_writer import ALWAYS, SOURCE
from tests.support.vault_feed import follow, full, revision_at, staged_of


class BrokerGround:
    """The node serves. `release`, `apply`, `notify`: up to the latest revision."""

    def __init__(self) -> None:
        self.now_s = 1.0
        self.driver = full([])
        self.page = FencePage(bytearray(FENCE_BYTES), bytes(BOOT_BYTES))
        self.vault = Vault(MemoryBackend(), self.page)
        self.listeners, self.reads = Listeners(), FencedReads()
        self.broker = SegmentBroker(self.listeners, lambda: self.vault, lambda: self.reads, lambda: self.now_s)
        self._notified = 1

    async def begin(self, *, empty: bool = False) -> BrokerGround:
        """`empty`: the broker starts before the vault has applied any revision."""
        if empty:
            await self.broker.start()
        follow(self.vault, self.driver)
        self.reads.open(self.vault, self._wait, lambda: self.now_s)
        self.release()
        self.page.serve(10**15, 1)
        if not empty:
            await self.broker.start()
        self.listeners.open()
        return self

    async def _wait(self, s: float) -> None:
        """A read that waits lets time pass."""
        self.now_s += s
        await asyncio.sleep(0)

    def commit(self, request: Txn) -> None:
        self.driver.do(request)

    def stage(self) -> None:
        changed = range(self.vault.revision + 1, self.driver.store.revision + 1)
        self.vault.staging.stage([row for each in changed for row in staged_of(self.driver, each)])

    def release(self) -> None:
        """The rows are staged first."""
        self.stage()
        self.vault.staging.release(self.driver.store.revision)

    def apply(self) -> None:
        follow(self.vault, self.driver)

    async def notify(self) -> None:
        while self._notified < self.driver.store.revision:
            self._notified += 1
            revision = revision_at(self.driver, self._notified)
            await self.listeners.notify(Notification(revision.number, events_of(revision)))

    async def leap(self) -> None:
        """A snapshot: the difference of the vault to the latest state, in two parts."""
        before = {item.key: item for item in self.vault.range(b"", None)}
        follow(self.vault, self.driver)
        after = {item.key: item for item in self.vault.range(b"", None)}
        latest = self._notified = self.driver.store.revision
        changed = [key for key in sorted(before.keys() | after.keys()) if before.get(key) != after.get(key)]
        events = [VaultEvent(key, latest, after.get(key)) for key in changed]
        await self.listeners.notify(Notification(latest, events[::2], last=False))
        await self.listeners.notify(Notification(latest, events[1::2]))

    async def write(self, request: Txn) -> None:
        """As a node that serves: released, notified, applied."""
        if request.success:
            self.commit(request)
            self.release()
            await self.notify()
            self.apply()

    async def look_up(self) -> SegmentAnswer:
        return await self.broker.lookup(SOURCE, ALWAYS, OnMissing.ALLOW)
