"""How a simulated node opens its vault: in the order of `vault.opening`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from palisade.vault.errors import VaultDamaged
from palisade.vault.fence_page import FencePage
from palisade.vault.vault import Vault
from palisade.vault.verification import verify
from tests.sim.vault_disk import Found

if TYPE_CHECKING:
    from tests.sim.disk import Disk


class SimVaultHome:
    """A `recovery.vault_storage.VaultHome`: the vault of one start of a node."""

    def __init__(self, disk: Disk, now: Callable[[], float]) -> None:
        self._disk, self._now = disk, now
        self.on_report: Callable[[Any], None] = lambda report: None
        self.on_open: Callable[[Vault], None] = lambda vault: None

    async def open(self) -> Vault:
        """In a thread. Raises VaultDamaged, VaultUnusable."""
        await asyncio.sleep(0.001)
        disk, backend = self._disk, self._disk.backend
        disk.read("vault")
        suspect = backend.suspect
        if suspect:
            with self._finds(Found.TORN_PAGES):
                backend.check_structure()
        page = FencePage(disk.page, disk.boot, first_sequence=int(self._now() * 1e9))
        backend.opened(page)
        if not backend.made:
            await disk.sync_in_a_thread()
            backend.made = True
        vault = Vault(backend, page)
        if suspect:
            with self._finds(Found.MIXED_CONTENT):
                for _ in verify(vault):
                    await asyncio.sleep(0)
            await backend.mark_verified()
            disk.report(Found.SOUND)
        self.on_open(vault)
        return vault

    @contextmanager
    def _finds(self, found: Found) -> Iterator[None]:
        try:
            yield
        except VaultDamaged:
            self._disk.report(found)
            raise

    def vault_id(self) -> str:
        return self._disk.vault_id

    def keep(self, report: Any) -> None:
        self.on_report(report)
