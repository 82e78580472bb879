"""The disk of one copy of a journal in simulated time: torn writes, slow syncs, errors."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import dataclass, field
from random import Random
from typing import Any

from palisade.journal.blocks import SECTOR_BYTES, is_file_name, read_file_header, scan
from palisade.journal.local_file import NAME
from tests.support.simulation import Process

SYNC_S = 0.003


@dataclass(slots=True)
class SimFile:
    """`end`: of what was written; zeros behind it are reserved. `synced`: how much of it is on the disk. `length`: that
    of the file, as of the last sync."""

    content: bytearray = field(default_factory=bytearray)
    synced: int = 0
    end: int = 0
    length: int = 0

    @classmethod
    def of(cls, content: bytes) -> SimFile:
        """A file that is on the disk."""
        return cls(bytearray(content), len(content), len(content), len(content))

    def is_on_disk(self) -> None:
        """What is left after a power failure."""
        self.synced = self.end = self.length = len(self.content)


@dataclass(slots=True)
class Flip:
    """One bit of one file. `flipped`: the byte with it."""

    disk: SimDisk
    name: str
    file: SimFile
    offset: int
    bit: int
    flipped: int = 0

    @property
    def is_there(self) -> bool:
        """Whether the damaged part is still in a file that the copy reads."""
        content = self.file.content
        in_use = self.disk.files.get(self.name) is self.file and self.offset < len(content)
        return in_use and content[self.offset] == self.flipped

    def undo(self) -> None:
        """Restore the byte, as from a backup of the file."""
        if self.is_there:
            self.file.content[self.offset] ^= self.bit


def last_block_at(content: bytes, name: str) -> int:
    """Where the last block begins; 0: there is none."""
    before = read_file_header(content, name)
    assert before is not None
    return max((offset for offset, _ in scan(content, name, before)), default=0)


class SimDisk:
    """The files of one copy; survives its processes. `sync_s`: how long each sync takes; None: up to `SYNC_S`.
    `room`: the bytes that fit on it. `sync_fails`: the next sync raises EIO, and what it should have stored is lost.
    `read_fails`: each read of a part of a file raises EIO. `reserves`: whether its file system can reserve space."""

    def __init__(self, random: Random, reserves: bool | None = None) -> None:
        """`reserves` by chance without it."""
        self.files: dict[str, SimFile] = {}
        self.sync_s: float | None = None
        self.room = 1 << 40
        self.sync_fails = self.read_fails = False
        self.reserves = random.random() < 0.5 if reserves is None else reserves
        self._random = random

    def lose_unsynced(self) -> None:
        """The power failure that loses most."""
        for file in self.files.values():
            del file.content[file.synced :]
            file.content += bytes(max(0, file.length - file.synced))
            file.is_on_disk()

    def lose_sector(self, sector: int) -> None:
        """A power failure that stores everything but one sector of the newest journal."""
        name = max(name for name in self.files if is_file_name(name))
        for file in self.files.values():
            if file is self.files[name]:
                assert file.synced <= sector * SECTOR_BYTES < file.end - SECTOR_BYTES
                file.content[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES] = bytes(SECTOR_BYTES)
            file.is_on_disk()

    def flip_a_bit(self) -> Flip | None:
        """A bit changes on the medium: in the role's file, in the newest journal, or in any. Not in the last block: it
        may then look like the rest of a write (`blocks.py`). None: there is no other block."""
        journals = sorted(filter(is_file_name, self.files))
        name = self._random.choice([NAME, *journals[-1:], *self._random.sample(journals, min(1, len(journals)))])
        content = self.files[name].content
        end = len(content) if name == NAME else last_block_at(bytes(content), name)
        if not end:
            return None
        flip = Flip(self, name, self.files[name], self._random.randrange(end), 1 << self._random.randrange(8))
        content[flip.offset] ^= flip.bit
        flip.flipped = content[flip.offset]
        return flip

    def damage(self, offset: int) -> None:
        """A bit of the oldest journal changes on the medium."""
        name = min(name for name in self.files if is_file_name(name))
        self.files[name].content[offset] ^= 1

    def crash(self) -> None:
        """A power failure: unsynced ends are lost, kept, or kept with sectors of zeros. In reserved space, the rest of
        a sector is lost as a whole."""
        for file in self.files.values():
            loose = file.end - file.synced
            if loose:
                kept = file.synced + self._random.randint(0, loose)
                next_sector = (file.synced + SECTOR_BYTES - 1) // SECTOR_BYTES * SECTOR_BYTES
                if file.end <= file.length and kept < file.end:
                    kept = kept // SECTOR_BYTES * SECTOR_BYTES if kept >= next_sector else file.synced
                del file.content[kept:]
                if kept - next_sector >= SECTOR_BYTES and self._random.random() < 0.5:
                    hole = next_sector + SECTOR_BYTES * self._random.randrange((kept - next_sector) // SECTOR_BYTES)
                    file.content[hole : hole + SECTOR_BYTES] = bytes(SECTOR_BYTES)
                file.content += bytes(max(0, file.length - kept))
            file.is_on_disk()


class SimFiles:
    """`palisade.journal.files.JournalFiles` of one process."""

    def __init__(self, disk: SimDisk, process: Process) -> None:
        self._disk = disk
        self._process = process
        self._last: asyncio.Future[None] | None = None

    async def _in_order(self, action: Any, takes_s: float | None = None) -> Any:
        """Completed even if the caller is cancelled, and after what was asked before, as in one thread."""
        before, loop = self._last, self._process.loop
        done: asyncio.Future[Any] = loop.create_future()
        self._last = done

        async def run() -> None:
            if before is not None:
                await asyncio.wait([before])
            random_s = SYNC_S * self._process.simulation.random.random()
            await asyncio.sleep(random_s if takes_s is None else takes_s)
            try:
                done.set_result(action())
            except OSError as error:
                done.set_exception(error)

        loop.create_task(run())
        return await asyncio.shield(done)

    async def names(self) -> list[str]:
        return await self._in_order(lambda: sorted(self._disk.files))  # type: ignore[no-any-return]

    async def read(self, name: str) -> bytes:
        return await self._in_order(lambda: bytes(self._disk.files[name].content))  # type: ignore[no-any-return]

    async def read_at(self, name: str, offset: int, size: int) -> bytes:
        if self._disk.read_fails:
            raise OSError(errno.EIO, "input/output error")
        return bytes(self._disk.files[name].content[offset : offset + size])

    async def create(self, name: str, content: bytes) -> None:
        await self.replace(name, content)

    async def replace(self, name: str, content: bytes) -> None:
        def run() -> None:
            self._disk.files[name] = SimFile.of(content)

        await self._in_order(run)

    async def truncate(self, name: str, size: int) -> None:
        def run() -> None:
            file = self._disk.files[name]
            del file.content[size:]
            file.is_on_disk()

        await self._in_order(run)

    async def remove(self, name: str) -> None:
        await self._in_order(lambda: self._disk.files.pop(name, None))

    async def reserve(self, name: str, size: int) -> None:
        def run() -> None:
            file = self._disk.files[name]
            self._lengthen(file, size if self._disk.reserves else 0)

        await self._in_order(run)

    def _lengthen(self, file: SimFile, size: int) -> None:
        """As far as the disk has room."""
        more = min(self._disk.room, max(0, size - len(file.content)))
        self._disk.room -= more
        file.content += bytes(more)

    def write(self, name: str, data: bytes) -> None:
        file = self._disk.files[name]
        self._lengthen(file, file.end + len(data))
        stored = data[: len(file.content) - file.end]
        file.content[file.end : file.end + len(stored)] = stored
        file.end += len(stored)
        if len(stored) < len(data):
            raise OSError(errno.ENOSPC, "no space left on device")

    async def sync(self, name: str) -> None:
        file = self._disk.files[name]
        end, length = file.end, len(file.content)

        def run() -> None:
            if self._disk.sync_fails:
                self._disk.sync_fails = False
                raise OSError(errno.EIO, "input/output error")
            file.synced = max(file.synced, min(end, file.end))
            file.length = max(file.length, min(length, len(file.content)))

        await self._in_order(run, self._disk.sync_s)

    def close(self) -> None: ...
