"""The logs of one ingester in memory: a crash loses what was not synced, or a part of it."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.realtime_nodes import IngestingNode
    from tests.support.realtime_world import RealtimeWorld


class LogDisk:
    """What survives of the logs of one node: by directory and file, with the length that is synced."""

    def __init__(self) -> None:
        self.directories: dict[str, dict[str, tuple[bytearray, list[int]]]] = {}

    def crash(self, rng: Random) -> None:
        for files in self.directories.values():
            for content, synced in files.values():
                del content[rng.randint(synced[0], len(content)) :]
                synced[0] = len(content)


class LogFiles:
    """`journal.files.JournalFiles` of one directory."""

    def __init__(
        self, world: RealtimeWorld, node: IngestingNode, files: dict[str, tuple[bytearray, list[int]]]
    ) -> None:
        self._world, self._node, self._files = world, node, files

    def _living(self) -> None:
        if self._node.dead:
            raise OSError("the process is dead")

    async def names(self) -> list[str]:
        return sorted(self._files)

    async def read(self, name: str) -> bytes:
        return bytes(self._files[name][0])

    async def read_at(self, name: str, offset: int, size: int) -> bytes:
        return bytes(self._files[name][0][offset : offset + size])

    async def create(self, name: str, content: bytes) -> None:
        self._living()
        self._files[name] = bytearray(content), [len(content)]

    replace = create

    async def truncate(self, name: str, size: int) -> None:
        content, synced = self._files[name]
        del content[size:]
        synced[0] = size

    async def remove(self, name: str) -> None:
        self._files.pop(name, None)

    async def reserve(self, name: str, size: int) -> None: ...

    def write(self, name: str, data: bytes) -> None:
        self._living()
        self._files[name][0].extend(data)

    async def sync(self, name: str) -> None:
        await self._world.some_turns()
        self._living()
        content, synced = self._files[name]
        synced[0] = len(content)

    def close(self) -> None: ...


class LogFolder:
    """A `realtime_log.RealtimeFolder`."""

    def __init__(self, world: RealtimeWorld, node: IngestingNode, disk: LogDisk) -> None:
        self._world, self._node, self._disk = world, node, disk

    async def names(self) -> list[str]:
        return sorted(self._disk.directories)

    def _living(self) -> None:
        if self._node.dead:
            raise OSError("the process is dead")

    def files(self, name: str) -> LogFiles:
        self._living()
        return LogFiles(self._world, self._node, self._disk.directories.setdefault(name, {}))

    async def remove(self, name: str) -> None:
        self._living()
        self._disk.directories.pop(name, None)
        self._world.check_removal(self._node.name, name)
