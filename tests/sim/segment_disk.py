"""The segments on the disk of a simulated machine: files of copies, and logs of realtime segments (issue 17).

Names and contents are those that the system shows to every process, so they survive a kill. A loss of power keeps what
was synced; of everything else the old state, the new one, or a part of it: of a written file a beginning, of a log a
part of its end. A removed or renamed file that was not synced may be there again.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING

from palisade.journal.files import JournalFiles
from palisade.segments.names import TRASH

if TYPE_CHECKING:
    from tests.sim.disk import Disk

SLOW_SHARE = 0.2
THREAD_S = 0.0005
"""How long a thread takes for a call of the system."""


class SegmentDisk:
    """`files`: by name, of copies. `logs`: by directory and name. `on_remove`: called before a copy or a whole log is
    removed, with its name on the disk, and whether it is a log."""

    def __init__(self, disk: Disk, chance: Random) -> None:
        self._disk, self._chance = disk, chance
        self.files: dict[str, bytes] = {}
        self.logs: dict[str, dict[str, LogFile]] = {}
        self.full = False
        """This volume alone."""
        self.slow_s = 0.0
        """The longest read of a file that is slow; 0: none is."""
        self.damaged: set[str] = set()
        """Names on the disk of which a bit has changed at some time."""
        self.on_full: Callable[[], None] = lambda: None
        """Called when it refuses to store something."""
        self.on_remove: Callable[[str, bool], None] = lambda name, is_log: None
        self._durable: dict[str, bytes] = {}
        self._synced: set[bytes] = set()
        """Contents whose blocks are on the disk, under whatever name."""

    async def in_thread(self, longest_s: float = THREAD_S) -> None:
        await asyncio.sleep(longest_s * self._chance.random())

    async def read(self) -> None:
        is_slow = self.slow_s > 0 and self._chance.random() < SLOW_SHARE
        await self.in_thread(self.slow_s if is_slow else THREAD_S)

    async def synced(self) -> None:
        """What needs no room. Raises OSError."""
        await self._disk.sync()

    async def stored(self) -> None:
        """As `synced`, with room for what was written. Raises OSError."""
        await self._disk.sync()
        self.check()

    def check(self) -> None:
        """Raises OSError."""
        self._disk.check()
        self.check_room()

    def check_room(self) -> None:
        """Raises OSError."""
        if self.full:
            self.on_full()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def damage(self) -> bool:
        """Change a bit of a copy or a log. Whether there is any."""
        logs = [(name, file) for name, log in sorted(self.logs.items()) for file in log.values() if file.content]
        names = [name for name in sorted(self.files) if not name.startswith((".", TRASH))]
        if not names and not logs:
            return False
        if logs and (not names or self._chance.random() < 0.5):
            name, file = self._chance.choice(logs)
            file.content[self._chance.randrange(len(file.content))] ^= 1 << self._chance.randrange(8)
        else:
            name = self._chance.choice(names)
            content = bytearray(self.files[name])
            content[self._chance.randrange(len(content))] ^= 1 << self._chance.randrange(8)
            self.files[name] = bytes(content)
        self.damaged.add(name)
        return True

    def keep(self, name: str) -> None:
        """The file survives a loss of power."""
        self._synced.add(self.files[name])
        self._durable[name] = self.files[name]

    def lose_power(self) -> None:
        kept = {}
        for name in sorted(self.files.keys() | self._durable.keys()):
            content = self._after_loss(self._durable.get(name), self.files.get(name))
            if content is not None:
                kept[name] = content
        self.files, self._durable = kept, dict(kept)
        for log in self.logs.values():
            for file in log.values():
                file.lose_power(self._chance)

    def _after_loss(self, durable: bytes | None, shown: bytes | None) -> bytes | None:
        if shown == durable:
            return shown
        lot = self._chance.random()
        if lot < 0.4:
            return durable
        if shown is None or shown in self._synced or lot < 0.7:
            return shown
        return shown[: self._chance.randrange(len(shown) + 1)]


class LogFile:
    """`synced`: so many bytes of it survive a loss of power."""

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.synced = len(content)

    def lose_power(self, chance: Random) -> None:
        del self.content[chance.randint(self.synced, len(self.content)) :]
        self.synced = len(self.content)


class SimSegmentFiles:
    """A `segments.segment_store.Disk`."""

    def __init__(self, disk: SegmentDisk) -> None:
        self._disk = disk

    async def names(self) -> list[str]:
        await self._disk.in_thread()
        return list(self._disk.files)

    async def read(self, file: str, limit: int) -> bytes:
        await self._disk.read()
        return self._at(file)[:limit]

    def _at(self, file: str) -> bytes:
        if file not in self._disk.files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), file)
        return self._disk.files[file]

    async def write(self, file: str, content: bytes) -> None:
        """A process that dies in the middle leaves half of it, as does a full disk."""
        await self._disk.in_thread()
        self._disk.files[file] = content[: len(content) // 2]
        self._disk.check()
        await self._disk.in_thread()
        self._disk.files[file] = content

    async def sync(self, file: str) -> None:
        self._at(file)
        await self._disk.stored()
        self._disk.keep(file)

    async def rename(self, old: str, new: str) -> None:
        await self._disk.in_thread()
        self._rename(old, new)

    def _rename(self, old: str, new: str) -> None:
        content = self._at(old)
        if new.startswith(TRASH):
            self._disk.on_remove(old, False)
        del self._disk.files[old]
        self._disk.files[new] = content

    async def remove(self, file: str) -> None:
        await self._disk.in_thread()
        self._remove(file)

    def _remove(self, file: str) -> None:
        self._disk.on_remove(file, False)
        self._disk.files.pop(file, None)

    async def rename_if(self, old: str, new: str, still: Callable[[], bool]) -> bool:
        await self._disk.in_thread()
        return await self._if(still, lambda: self._rename(old, new))

    async def remove_if(self, file: str, still: Callable[[], bool]) -> bool:
        await self._disk.in_thread()
        return await self._if(still, lambda: self._remove(file))

    async def _if(self, still: Callable[[], bool], act: Callable[[], None]) -> bool:
        if not still():
            return False
        act()
        return True


class SimLogFiles:
    """`journal.files.JournalFiles` of one directory."""

    def __init__(self, disk: SegmentDisk, directory: str) -> None:
        self._disk, self._directory = disk, directory
        self._failure: OSError | None = None

    @property
    def _log(self) -> dict[str, LogFile]:
        return self._disk.logs.setdefault(self._directory, {})

    async def names(self) -> list[str]:
        await self._disk.in_thread()
        return sorted(self._log)

    async def read(self, name: str) -> bytes:
        await self._disk.in_thread()
        return bytes(self._log[name].content)

    async def read_at(self, name: str, offset: int, size: int) -> bytes:
        return bytes(self._log[name].content[offset : offset + size])

    async def create(self, name: str, content: bytes) -> None:
        self._log[name] = LogFile()
        self._log[name].content.extend(content[: len(content) // 2])
        await self._disk.stored()
        self._log[name] = LogFile(content)

    async def replace(self, name: str, content: bytes) -> None:
        await self._disk.stored()
        self._log[name] = LogFile(content)

    async def truncate(self, name: str, size: int) -> None:
        await self._disk.synced()
        del self._log[name].content[size:]
        self._log[name].synced = size

    async def remove(self, name: str) -> None:
        await self._disk.synced()
        self._log.pop(name, None)

    async def reserve(self, name: str, size: int) -> None: ...

    def write(self, name: str, data: bytes) -> None:
        """A full volume stores half of it."""
        self._raise_failure()
        try:
            self._disk.check_room()
        except OSError as error:
            self._failure = error
            self._log[name].content.extend(data[: len(data) // 2])
            raise
        self._log[name].content.extend(data)

    async def sync(self, name: str) -> None:
        """As in `DiskFiles`, each one fails after the first that has failed."""
        self._raise_failure()
        file = self._log[name]
        length = len(file.content)
        await self._failing(self._disk.stored() if length > file.synced else self._disk.synced())
        file.synced = max(file.synced, length)

    async def _failing(self, work: Awaitable[None]) -> None:
        try:
            await work
        except OSError as error:
            self._failure = error
            raise

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise OSError(self._failure.errno, f"{self._failure.strerror}, earlier")

    def close(self) -> None: ...


class SimRealtimeFolder:
    """A `segments.realtime_log.RealtimeFolder`."""

    def __init__(self, disk: SegmentDisk) -> None:
        self._disk = disk

    async def names(self) -> list[str]:
        await self._disk.in_thread()
        return sorted(self._disk.logs)

    def files(self, name: str) -> JournalFiles:
        self._disk.logs.setdefault(name, {})
        return SimLogFiles(self._disk, name)

    async def remove(self, name: str) -> None:
        """A process that dies in the middle leaves an empty directory."""
        if name not in self._disk.logs:
            return
        if self._disk.logs[name]:
            self._disk.on_remove(name, True)
        self._disk.logs[name].clear()
        await self._disk.synced()
        self._disk.logs.pop(name, None)
