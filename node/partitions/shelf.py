"""The copies that a node has, as files, each known by the digest of what is in it.

What holds, and why:
- What is read here is what was asked for, whole: every read is hashed, and a file that is not what it was is forgotten,
  so it is fetched anew.
- A file has its final name only when all of it is there: it is written under another one and renamed. What a crash
  leaves under the other name is removed at the next start. Nothing is synced: a file that a loss of power has torn
  has another digest, and digests are what the next start believes.
- Nothing is ever removed but by `drop` and `purge`. What is past its time is moved into the trash, which `restore`
  undoes, and purged out of it later; for both, whoever asks is asked again in the thread that acts, with nothing in
  between: so a node that was paused acts on nothing that it knew before (issue 4, F11).
"""

from __future__ import annotations

import errno
import hashlib
import logging
from collections.abc import Callable
from typing import Protocol

from node.partitions.errors import BadPartition, NoSuchPartition, NotFetched, NotRemoved
from node.partitions.names import SIZE_BYTES_MAX, TRASH, Wanted, checked_name, table_and_day

log = logging.getLogger(__name__)

INCOMING = ".incoming-"
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Disk(Protocol):
    """One folder. Every method may raise OSError; each is one step, and a crash may leave any of them half done."""

    async def names(self) -> list[str]:
        """The files, those in its trash with TRASH in front."""
        ...

    async def read(self, file: str, limit: int) -> bytes:
        """At most `limit` bytes. Raises FileNotFoundError."""
        ...

    async def write(self, file: str, content: bytes) -> None: ...
    async def rename(self, old: str, new: str) -> None:
        """In one step: either both names are as they were, or the new one is the old file."""
        ...

    async def remove(self, file: str) -> None:
        """It is gone afterwards, whether it was there or not."""
        ...

    async def rename_if(self, old: str, new: str, still: Callable[[], bool]) -> bool:
        """As `rename`, if `still()` says so directly before it; what that raises, this raises. Whether it was done."""
        ...

    async def remove_if(self, file: str, still: Callable[[], bool]) -> bool:
        """As `remove`, in the same manner."""
        ...


class Shelf:
    """`held`: what is here, by name, as of the last `scan` and what was done since; `trashed`: what is in the trash."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.held: dict[str, Wanted] = {}
        self.trashed: dict[str, Wanted] = {}
        self._written = 0

    async def scan(self) -> None:
        """Read everything; remove what was half written. A file that is no partition is left alone. Raises OSError."""
        held: dict[str, Wanted] = {}
        trashed: dict[str, Wanted] = {}
        for file in sorted(await self.disk.names()):
            if file.startswith(INCOMING):
                await self.disk.remove(file)
            elif (name := name_in(file.removeprefix(TRASH))) is None:
                log.warning("%s in the folder of the partitions is no partition; it is left alone", file[:80])
            else:
                (trashed if file.startswith(TRASH) else held)[name] = await self._version(file)
        self.held, self.trashed = held, trashed

    async def _version(self, file: str) -> Wanted:
        try:
            return version_of(await self.disk.read(file, SIZE_BYTES_MAX + 1))
        except (OSError, BadPartition) as error:
            log.warning("partition %s can't be read, and is fetched anew if it is wanted: %s", file, error)
            return UNREADABLE

    def versions(self) -> dict[str, str]:
        """Version by name; empty for what can't be right."""
        return {name: held.digest if held is not UNREADABLE else "" for name, held in self.held.items()}

    def has(self, name: str, digest: str) -> bool:
        held = self.held.get(name)
        return held is not None and held is not UNREADABLE and held.digest == digest

    async def put(self, name: str, wanted: Wanted, content: bytes) -> None:
        """`content` was checked. Raises NotFetched when the disk does not take it: what was here is here then."""
        self._written += 1
        incoming = f"{INCOMING}{self._written}-{file_of(name)}"
        try:
            await self.disk.write(incoming, content)
            await self.disk.rename(incoming, file_of(name))
        except OSError as error:
            await self._forget_incoming(incoming)
            what = "there is no room for it" if error.errno in NO_ROOM else "the disk does not take it"
            raise NotFetched(f"partition {name}: {what} ({error}); free some room, it is tried again") from error
        self.held[name] = wanted

    async def _forget_incoming(self, incoming: str) -> None:
        try:
            await self.disk.remove(incoming)
        except OSError as error:
            log.warning("%s stays until the next start: %s", incoming, error)

    async def drop(self, name: str) -> None:
        """Nothing of it is left afterwards. Raises NotRemoved: then it is not served any more all the same."""
        held = self.held.pop(name, None)
        try:
            await self.disk.remove(file_of(name))
        except OSError as error:
            if held is not None:
                self.held[name] = UNREADABLE
            raise NotRemoved(f"partition {name} can't be removed: {error}; check the rights of its folder") from error

    async def trash(self, name: str, still: Callable[[], bool]) -> bool:
        """It is not served any more, and can come back. Whether that was done. Raises NotRemoved, and as `still`."""
        held = self.held.pop(name)
        done = False
        try:
            done = await self.disk.rename_if(file_of(name), TRASH + file_of(name), still)
        except OSError as error:
            raise NotRemoved(f"partition {name} can't be moved into the trash: {error}; check its folder") from error
        finally:
            (self.trashed if done else self.held)[name] = held
        return done

    async def purge(self, name: str, still: Callable[[], bool]) -> bool:
        """For good, out of the trash. Whether that was done. Raises NotRemoved, and as `still`."""
        try:
            done = await self.disk.remove_if(TRASH + file_of(name), still)
        except OSError as error:
            raise NotRemoved(f"partition {name} can't be removed from the trash: {error}; check its folder") from error
        if done:
            self.trashed.pop(name, None)
        return done

    async def restore(self, name: str) -> None:
        """Out of the trash. Raises NotFetched."""
        try:
            await self.disk.rename(TRASH + file_of(name), file_of(name))
        except FileNotFoundError as error:
            self.trashed.pop(name, None)
            raise NotFetched(f"partition {name} is not in the trash any more; it is fetched") from error
        except OSError as error:
            raise NotFetched(f"partition {name} can't be taken out of the trash: {error}; check its folder") from error
        self.held[name] = self.trashed.pop(name)

    async def read(self, name: str, digest: str | None = None) -> tuple[bytes, Wanted]:
        """Raises NoSuchPartition; also for one that turns out to be damaged, which is forgotten then."""
        held = self.held.get(name)
        if held is None or held is UNREADABLE or (digest is not None and held.digest != digest):
            raise NoSuchPartition(f"this node does not hold partition {name}{f' as {digest}' if digest else ''}")
        try:
            content = await self.disk.read(file_of(name), SIZE_BYTES_MAX + 1)
            if version_of(content) == held:
                return content, held
            trouble = "it is not what it was"
        except (OSError, BadPartition) as error:
            trouble = str(error)
        if self.held.get(name) is held:
            log.warning("partition %s is damaged here, and is fetched anew: %s", name, trouble)
            self.held[name] = UNREADABLE
        raise NoSuchPartition(f"partition {name} is damaged here: {trouble}; ask another node")


UNREADABLE = Wanted("sha256:" + "0" * 64, 0)
"""Stands for what can't be right, whatever is wanted: it is evicted, and fetched anew."""


def version_of(content: bytes) -> Wanted:
    """Raises BadPartition for one that is too large."""
    return Wanted(f"sha256:{hashlib.sha256(content).hexdigest()}", len(content))


def file_of(name: str) -> str:
    """Raises BadPartition."""
    table, day = table_and_day(checked_name(name))
    return f"{table}@{day}"


def name_in(file: str) -> str | None:
    """None for a file that is no partition."""
    try:
        return checked_name(file.replace("@", "/", 1))
    except BadPartition:
        return None
