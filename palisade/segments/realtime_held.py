"""The realtime segments whose logs are on this node: opened at its start, made for new segments, removed at last.

A directory that cannot be read or removed is listed in `damaged` and not used again by this process, so that no new log
is written after the rows of an earlier one. The next start reads it again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from palisade.base.errors import PalisadeError
from palisade.catalog.errors import NotAllowed
from palisade.journal.errors import JournalDamaged, JournalError
from palisade.journal.files import JournalFiles
from palisade.segments.realtime_log import LogHeader, RealtimeFolder, RealtimeLog, header_in
from palisade.segments.segment_store import file_of
from palisade.wire.segment_errors import NotIngesting, RealtimeDamaged, RealtimeNotStored

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Held:
    """A segment whose log is here. `opening`: this process has sent the transaction that opens it. `opened`,
    `published`: the revisions at which this process opened and published it, or 0. `since`: the time at which the log
    was made or read. `closed_at`: the time at which it was closed, or read by a later process; None while it grows.
    `error`: why the last step failed."""

    log: RealtimeLog
    since: float
    opening: bool = False
    opened: int = 0
    published: int = 0
    closed_at: float | None = None
    error: str = ""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = str(self.log.header.segment)


@dataclass(frozen=True, slots=True)
class DamagedLog:
    """A directory that is not used. `header`: None if it cannot be read. `is_read`: whether its rows were read."""

    why: str
    header: LogHeader | None = None
    is_read: bool = False

    def error(self, name: str) -> RealtimeDamaged:
        return RealtimeDamaged(
            f"the rows of segment {name} cannot be read: {self.why}. It accepts no rows, and queries report it as "
            "missing. Repair the disk, or restore the directory, and start the node again; or exclude its rows with "
            f"'palisade segments realtime give-up {name} --reason TEXT', and open another segment"
        )


class HeldSegments:
    """`held`: by name. `damaged`: directories that are not used. `now`: of `Held.since`."""

    def __init__(self, folder: RealtimeFolder, now: Callable[[], float]) -> None:
        self.held: dict[str, Held] = {}
        self.damaged: dict[str, DamagedLog] = {}
        self.now = now
        self._folder = folder
        self._open_files: list[JournalFiles] = []
        """Files of damaged logs; released at the end, because a step may be reading them."""

    async def start(self) -> None:
        for directory in await self._folder.names():
            try:
                await self._open(directory)
            except (PalisadeError, OSError) as error:
                self._note(directory, str(error), None)

    async def _open(self, directory: str) -> None:
        files = self._folder.files(directory)
        try:
            found = await RealtimeLog.open(files)
        except (JournalError, OSError) as error:
            self._open_files.append(files)
            why = error.damage if isinstance(error, JournalDamaged) else str(error)
            self._note(directory, why, await header_in(files))
            return
        if found is None or file_of(str(found.header.segment)) != directory:
            files.close()
            if found is not None:
                raise NotAllowed(
                    f"it has the rows of segment {found.header.segment}: restore the name of the directory"
                )
            await self._folder.remove(directory)
            return
        now = self.now()
        held = Held(found, now, closed_at=now if found.closed else None)
        self.held[held.name] = held
        log.info("realtime segment resumed: name=%s rows=%d closed=%s", held.name, found.rows, found.closed)

    def _note(self, directory: str, why: str, header: LogHeader | None) -> None:
        log.error("realtime segment not readable, lookups report it as missing: directory=%s error=%s", directory, why)
        self.damaged[directory] = DamagedLog(why, header)

    def damage_found(self, held: Held, why: str) -> RealtimeDamaged:
        """Mark the segment as damaged; requests that have begun store no more rows in it. Returns the error for the
        request that found the damage."""
        held.log.failed = True
        if self.held.pop(held.name, None) is not None:
            self._open_files.append(held.log.files)
            self._note(file_of(held.name), why, held.log.header)
        return DamagedLog(why).error(held.name)

    def damage_of(self, name: str) -> RealtimeDamaged | None:
        found = self.damaged.get(file_of(name))
        return None if found is None or found.is_read else found.error(name)

    async def create(self, header: LogHeader) -> Held:
        """One call at a time. A call that fails leaves nothing on the disk. Raises NotIngesting, RealtimeNotStored,
        PalisadeError, OSError."""
        name, directory = str(header.segment), file_of(str(header.segment))
        if name in self.held:
            raise NotIngesting(f"segment {name} is being opened here: retry")
        if directory not in self.damaged and directory in await self._folder.names():
            self.damaged[directory] = DamagedLog("this process did not make it", is_read=True)
        if directory in self.damaged:
            raise RealtimeNotStored(
                f"segment {name} cannot be opened here, its directory exists and is not used: "
                f"{self.damaged[directory].why}; start the node again to read it, or open a segment at another node"
            )
        try:
            made = await self._made(directory, header)
        except (PalisadeError, OSError):
            await self._remove(directory)
            raise
        self.held[name] = held = Held(made, self.now())
        return held

    async def _made(self, directory: str, header: LogHeader) -> RealtimeLog:
        files = self._folder.files(directory)
        try:
            return await RealtimeLog.create(files, header)
        except (PalisadeError, OSError):
            files.close()
            raise

    async def remove(self, held: Held) -> None:
        """Remove the log; a second call does nothing. Raises OSError; then the next start removes it."""
        async with held.lock:
            if self.held.pop(held.name, None) is not None:
                held.log.release()
                await self._remove(file_of(held.name))

    async def _remove(self, directory: str) -> None:
        try:
            await self._folder.remove(directory)
        except OSError as error:
            why = f"it was not removed ({error}); the next start removes it"
            self.damaged[directory] = DamagedLog(why, is_read=True)
            raise

    def release(self) -> None:
        for held in self.held.values():
            held.log.release()
        for files in self._open_files:
            files.close()
