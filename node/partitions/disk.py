"""A folder of files, in threads: a slow disk keeps nobody waiting."""

from __future__ import annotations

import asyncio
from pathlib import Path


class FolderDisk:
    """A `shelf.Disk`. The folder is made when it is first needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def names(self) -> list[str]:
        return await asyncio.to_thread(self._names)

    def _names(self) -> list[str]:
        return [each.name for each in self._folder.iterdir()] if self._folder.exists() else []

    async def read(self, file: str, limit: int) -> bytes:
        return await asyncio.to_thread(self._read, file, limit)

    def _read(self, file: str, limit: int) -> bytes:
        with (self._folder / file).open("rb") as opened:
            return opened.read(limit)

    async def write(self, file: str, content: bytes) -> None:
        await asyncio.to_thread(self._write, file, content)

    def _write(self, file: str, content: bytes) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / file).write_bytes(content)

    async def rename(self, old: str, new: str) -> None:
        await asyncio.to_thread((self._folder / old).replace, self._folder / new)

    async def remove(self, file: str) -> None:
        await asyncio.to_thread((self._folder / file).unlink, missing_ok=True)
