"""A disk for segments in memory, with a crash, a fault or a lack of room at any step; and a source to fetch from."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable

from palisade.segments.names import Wanted
from palisade.segments.sources import SegmentSource, SourceFailed
from palisade.segments.verification import version_of
from palisade.vault.vault import Vault
from tests.support.recovery_world import Steps


class Files:
    """What survives a crash. `room_bytes`: its capacity. `read_only`: mounted so, as after an error of the device."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.room_bytes: int | None = None
        self.read_only = False
        self.stubborn: set[str] = set()
        """Files that can't be removed or replaced."""


class SimulatedDisk:
    """A `segments.segment_store.Disk`, each change a step; an interrupted write leaves half a file."""

    def __init__(self, files: Files, steps: Steps | None = None) -> None:
        self.files, self.steps = files, steps or Steps()

    async def names(self) -> list[str]:
        return list(self.files.content)

    async def read(self, file: str, limit: int) -> bytes:
        if file not in self.files.content:
            raise FileNotFoundError(errno.ENOENT, "no such file", file)
        return self.files.content[file][:limit]

    async def write(self, file: str, content: bytes) -> None:
        self._refuse_if_read_only(file)
        self.files.content[file] = content[: len(content) // 2]
        others = sum(len(each) for name, each in self.files.content.items() if name != file)
        if self.files.room_bytes is not None and others + len(content) > self.files.room_bytes:
            raise OSError(errno.ENOSPC, "no space left on device")

        async def work() -> None:
            self.files.content[file] = content

        await self.steps.take("write", work)

    async def sync(self, file: str) -> None:
        """A crash of this disk keeps what was written."""

    async def rename(self, old: str, new: str) -> None:
        self._refuse(new)

        async def work() -> None:
            self.files.content[new] = self.files.content.pop(old)

        await self.steps.take("rename", work)

    async def remove(self, file: str) -> None:
        self._refuse(file)

        async def work() -> None:
            self.files.content.pop(file, None)

        await self.steps.take("remove", work)

    async def rename_if(self, old: str, new: str, still: Callable[[], bool]) -> bool:
        self._refuse(old)
        if not still():
            return False
        await self.rename(old, new)
        return True

    async def remove_if(self, file: str, still: Callable[[], bool]) -> bool:
        self._refuse(file)
        if not still():
            return False
        await self.remove(file)
        return True

    def _refuse_if_read_only(self, file: str) -> None:
        if self.files.read_only:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), file)

    def _refuse(self, file: str) -> None:
        self._refuse_if_read_only(file)
        if file in self.files.stubborn:
            raise PermissionError(errno.EACCES, "permission denied", file)


class Stock:
    """A `sources.Source` with given segments, which records its requests."""

    def __init__(self, name: str = "stock") -> None:
        self.name = name
        self.content: dict[str, bytes] = {}
        self.asked: list[str] = []

    async def get(self, name: str, wanted: Wanted) -> bytes:
        self.asked.append(name)
        if name not in self.content:
            raise SourceFailed("does not have it")
        return self.content[name]

    def sources(self, name: str, wanted: Wanted, vault: Vault) -> Iterable[SegmentSource]:
        """It is everywhere."""
        yield self

    def has(self, name: str, content: bytes) -> Wanted:
        """From now on."""
        self.content[name] = content
        return version_of(content)
