"""A vault keeper over a group of one, with a component that records its calls, and can be paused."""

from __future__ import annotations

import asyncio
from pathlib import Path

from palisade.base.clock import SystemClock
from palisade.metastore.command_codec import encode_command
from palisade.metastore.requests import FoundCluster, Put
from palisade.recovery.catchup import Difference
from palisade.recovery.lifecycle import Component, Lifecycle, Part
from palisade.recovery.listeners import Listeners, Notification
from palisade.recovery.vault_component import OnVault, RecoveryClock, VaultComponent
from palisade.recovery.vault_storage import VaultFolder
from palisade.service.key_values import KeyValues
from palisade.service.local_source import local_source
from tests.support.fake_group import FakeGroup, fake_group


class World(Component):
    """A group of one, and a component that records its calls."""

    def __init__(self, path: Path) -> None:
        self.group: FakeGroup = fake_group()
        self.group.apply([encode_command(FoundCluster("id-1"))])
        self.service = KeyValues(self.group, self.group.store, deadline_s=0.3)
        self.path = path
        self.heard: list[tuple[int, list[bytes]]] = []
        self.began_at: list[int] = []
        self.fails_at = 0
        self.stands_at = 0
        """The component waits there until `goes_on` is set."""
        self.stands, self.goes_on = asyncio.Event(), asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

    def keeper(self, beside: Component | None = None) -> VaultComponent:
        self.listeners = Listeners()
        others = [Part("beside", beside)] if beside is not None else []
        inner = Lifecycle([Part("partitions", self), *others], self.listeners)
        clock = RecoveryClock(SystemClock(), gentle=False)
        return VaultComponent(
            VaultFolder(self.path), "n1", local_source(self.service, "n1"), OnVault(inner), clock, Difference(0)
        )

    async def start(self) -> None:
        self.began_at.append(self.listeners.handled)
        self.listeners.listen("partitions", self._on_change)

    async def _on_change(self, notification: Notification) -> None:
        await self.gate.wait()
        if notification.revision == self.stands_at:
            self.stands.set()
            await self.goes_on.wait()
        if notification.revision == self.fails_at:
            raise RuntimeError("the partition's disk")
        self.heard.append((notification.revision, [event.key for event in notification.events]))

    def put(self, *keys: str) -> int:
        for key in keys:
            self.group.apply([encode_command(Put(key.encode(), b"v"))])
        return self.group.store.revision
