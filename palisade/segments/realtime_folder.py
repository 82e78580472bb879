"""The folder of realtime segments on the disk of their ingester."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from palisade.base.durable_files import sync_directory
from palisade.journal.files import DiskFiles, JournalFiles


class DiskFolder:
    """A `realtime_log.RealtimeFolder`. It is created with the first segment."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def names(self) -> list[str]:
        def run() -> list[str]:
            return sorted(each.name for each in self._folder.iterdir()) if self._folder.exists() else []

        return await asyncio.to_thread(run)

    def files(self, name: str) -> JournalFiles:
        return DiskFiles(self._folder / name)

    async def remove(self, name: str) -> None:
        def run() -> None:
            if (self._folder / name).exists():
                shutil.rmtree(self._folder / name)
                sync_directory(self._folder)

        await asyncio.to_thread(run)
