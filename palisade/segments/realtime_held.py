"""The realtime segments whose logs are on this node: opened at its start, made for new segments, removed at last.

A directory that cannot be opened, or not removed, is listed in `damaged` and not used again by this process: a new log
is never written after the rows of an earlier one. The next start reads it again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from palisade.base.errors import PalisadeError
from palisade.catalog.errors import NotAllowed
from palisade.segments.realtime_log import LogHeader, RealtimeFolder, RealtimeLog
from palisade.segments.segment_store import file_of
from palisade.wire.segment_errors import NotIngesting, RealtimeNotStored

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Held:
    """A segment whose log is here. `opening`: this process has sent the transaction that opens it. `opened`,
    `published`: the revisions at which this process did so, or 0. `since`: when the log was made or read. `closed_at`:
    when it was closed, or read by a later process; None while it grows. `error`: why the last step failed."""

    log: RealtimeLog
    since: float
    opening: bool = False
    opened: int = 0
    published: int = 0
    closed_at: float | None = None
    error: str = ""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def name(self) -> str:
        return str(self.log.header.segment)


class HeldSegments:
    """`held`: by name. `damaged`: directories that are not used, and why. `now`: of `Held.since`."""

    def __init__(self, folder: RealtimeFolder, now: Callable[[], float]) -> None:
        self.held: dict[str, Held] = {}
        self.damaged: dict[str, str] = {}
        self.now = now
        self._folder = folder

    async def start(self) -> None:
        for directory in await self._folder.names():
            try:
                await self._open(directory)
            except (PalisadeError, OSError) as error:
                log.error("realtime segment not readable, lookups report it as missing: %s: %s", directory, error)
                self.damaged[directory] = str(error)

    async def _open(self, directory: str) -> None:
        files = self._folder.files(directory)
        found = await RealtimeLog.open(files)
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

    async def create(self, header: LogHeader) -> Held:
        """One call at a time. If it fails, nothing is left of it. Raises NotIngesting, RealtimeNotStored,
        PalisadeError, OSError."""
        name, directory = str(header.segment), file_of(str(header.segment))
        if name in self.held:
            raise NotIngesting(f"segment {name} is being opened here: repeat")
        if directory not in self.damaged and directory in await self._folder.names():
            self.damaged[directory] = "this process did not make it"
        if directory in self.damaged:
            raise RealtimeNotStored(
                f"segment {name} cannot be opened here, its directory exists and is not used: "
                f"{self.damaged[directory]}; start the node again to read it, or open a segment at another node"
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
        """Once, also if the hand-off and an opening that failed both do so. Raises OSError; then the next start
        removes it."""
        async with held.lock:
            if self.held.pop(held.name, None) is not None:
                held.log.release()
                await self._remove(file_of(held.name))

    async def _remove(self, directory: str) -> None:
        try:
            await self._folder.remove(directory)
        except OSError as error:
            self.damaged[directory] = f"it was not removed ({error}); the next start does that"
            raise

    def release(self) -> None:
        for held in self.held.values():
            held.log.release()
