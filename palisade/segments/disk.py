"""A folder of files, accessed in threads so that a slow disk does not block the event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from palisade.base.durable_files import make_directory, sync_directory
from palisade.segments.names import TRASH


class FolderDisk:
    """A `segment_store.Disk`. The folder is created by the first write."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def names(self) -> list[str]:
        return await asyncio.to_thread(self._names)

    def _names(self) -> list[str]:
        trash = self._folder / TRASH
        if not self._folder.exists():
            return []
        here = [each.name for each in self._folder.iterdir() if each != trash]
        return here + ([TRASH + each.name for each in trash.iterdir()] if trash.is_dir() else [])

    async def read(self, file: str, limit: int) -> bytes:
        return await asyncio.to_thread(self._read, file, limit)

    def _read(self, file: str, limit: int) -> bytes:
        with (self._folder / file).open("rb") as opened:
            return opened.read(limit)

    async def write(self, file: str, content: bytes) -> None:
        await asyncio.to_thread(self._write, file, content)

    def _write(self, file: str, content: bytes) -> None:
        make_directory(self._folder)
        (self._folder / file).write_bytes(content)

    async def sync(self, file: str) -> None:
        def run() -> None:
            with (self._folder / file).open("rb") as opened:
                os.fsync(opened.fileno())
            sync_directory(self._folder)

        await asyncio.to_thread(run)

    async def rename(self, old: str, new: str) -> None:
        await asyncio.to_thread((self._folder / old).replace, self._folder / new)

    async def remove(self, file: str) -> None:
        await asyncio.to_thread((self._folder / file).unlink, missing_ok=True)

    async def rename_if(self, old: str, new: str, still: Callable[[], bool]) -> bool:
        return await asyncio.to_thread(self._rename_if, self._folder / old, self._folder / new, still)

    @staticmethod
    def _rename_if(old: Path, new: Path, still: Callable[[], bool]) -> bool:
        new.parent.mkdir(parents=True, exist_ok=True)
        if not still():
            return False
        old.replace(new)
        return True

    async def remove_if(self, file: str, still: Callable[[], bool]) -> bool:
        return await asyncio.to_thread(self._remove_if, self._folder / file, still)

    @staticmethod
    def _remove_if(path: Path, still: Callable[[], bool]) -> bool:
        if not still():
            return False
        path.unlink(missing_ok=True)
        return True
