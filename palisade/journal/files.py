"""The files of one copy: a port, to which tests pass a failing disk, and its implementation.

Every operation runs in one thread, in order, and is completed even if its caller is cancelled. Only `write` is
executed at once, because it only fills the page cache.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar

from palisade.base.clock import SystemClock
from palisade.base.directory_lock import DirectoryLock
from palisade.base.durable_files import replace_file, sync_directory, write_synced
from palisade.base.metrics import Histogram
from palisade.journal.errors import DirectoryInUse

T = TypeVar("T")
SLOW_SYNC_S = 0.005
_system_clock = SystemClock()


class JournalFiles(Protocol):
    """Raises OSError. `create`, `replace`, `truncate` and `remove` are durable on return."""

    async def names(self) -> list[str]: ...
    async def read(self, name: str) -> bytes: ...
    async def read_at(self, name: str, offset: int, size: int) -> bytes: ...
    async def create(self, name: str, content: bytes) -> None: ...
    async def replace(self, name: str, content: bytes) -> None: ...
    async def truncate(self, name: str, size: int) -> None: ...
    async def remove(self, name: str) -> None: ...
    async def reserve(self, name: str, size: int) -> None:
        """Reserve space for the file to grow to `size` bytes, if the disk has it. Zeros follow the written data, so
        that a sync stores no new length."""

    def write(self, name: str, data: bytes) -> None:
        """Write at the end of the file; not durable before `sync`."""

    async def sync(self, name: str) -> None: ...
    def close(self) -> None: ...


class DiskFiles:
    """Raises DirectoryInUse."""

    def __init__(self, directory: Path, clock: Callable[[], float] = _system_clock.now) -> None:
        self.directory = directory
        self._lock = DirectoryLock(directory, DirectoryInUse, what="journal directory")
        self._thread = ThreadPoolExecutor(1, "journal-files")
        self._open: dict[str, int] = {}
        self._ends: dict[str, int] = {}
        """Sync the data that was written to an open file."""
        self._slow = False
        self.sync_times = Histogram()
        self._clock = clock
        self._failure: OSError | None = None
        """The error of the first write or sync that failed. A part may be stored, or pages lost that the next sync
        would not report. Thus each later call fails too, even if the caller of the first one was cancelled."""

    async def _in_thread(self, action: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, action)

    async def names(self) -> list[str]:
        return await self._in_thread(lambda: sorted(each.name for each in self.directory.iterdir()))

    async def read(self, name: str) -> bytes:
        return await self._in_thread((self.directory / name).read_bytes)

    async def read_at(self, name: str, offset: int, size: int) -> bytes:
        """Not executed in the thread, because it must not wait for a sync."""
        return os.pread(self._file(name), size, offset)

    async def create(self, name: str, content: bytes) -> None:
        def run() -> None:
            write_synced(self.directory / name, content)
            sync_directory(self.directory)

        self._forget(name)
        await self._in_thread(run)

    async def replace(self, name: str, content: bytes) -> None:
        await self._in_thread(lambda: replace_file(self.directory / name, content, self.directory / f"{name}.partial"))

    async def truncate(self, name: str, size: int) -> None:
        def run() -> None:
            with (self.directory / name).open("r+b") as file:
                file.truncate(size)
                os.fsync(file.fileno())

        await self._in_thread(run)
        if name in self._ends:
            self._ends[name] = size

    async def reserve(self, name: str, size: int) -> None:
        file = self._file(name)

        def run() -> None:
            with contextlib.suppress(OSError):  # on a full disk, the write without space fails later
                os.posix_fallocate(file, 0, size)

        await self._in_thread(run)

    async def remove(self, name: str) -> None:
        def run() -> None:
            (self.directory / name).unlink(missing_ok=True)
            sync_directory(self.directory)

        self._forget(name)
        await self._in_thread(run)

    def write(self, name: str, data: bytes) -> None:
        self._raise_failure()
        file, rest = self._file(name), memoryview(data)
        try:
            while rest:
                written = os.pwrite(file, rest, self._ends[name])
                self._ends[name] += written
                rest = rest[written:]
        except OSError as error:
            self._failure = error
            raise

    async def sync(self, name: str) -> None:
        """Syncs in the event loop while the disk is fast, because a thread would cost as much as the sync. After a slow
        sync, the next one runs in the thread, so that the lease is renewed and connections are served meanwhile."""
        file = self._file(name)
        began = self._clock()
        if self._slow:
            await self._in_thread(lambda: self._sync_file(file))
        else:
            self._sync_file(file)
        took_s = self._clock() - began
        self._slow = took_s > SLOW_SYNC_S
        self.sync_times.observe(took_s)

    def _sync_file(self, file: int) -> None:
        self._raise_failure()
        try:
            os.fdatasync(file)
        except OSError as error:
            self._failure = error
            raise

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise OSError(self._failure.errno, f"{self._failure.strerror}, earlier: nothing is written until a restart")

    def close(self) -> None:
        self._thread.shutdown(wait=True)
        for file in self._open.values():
            os.close(file)
        self._open.clear()
        self._lock.release()

    def _file(self, name: str) -> int:
        if name not in self._open:
            file = self._open[name] = os.open(self.directory / name, os.O_RDWR | os.O_CLOEXEC)
            self._ends[name] = os.fstat(file).st_size
        return self._open[name]

    def _forget(self, name: str) -> None:
        """Closes a file that is removed or replaced, in the thread, where a sync of it may still be waiting."""
        if name in self._open:
            del self._ends[name]
            self._thread.submit(os.close, self._open.pop(name))
