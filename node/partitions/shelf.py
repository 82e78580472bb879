"""The copies that a node has, as files, each known by the digest of what is in it.

What holds, and why:
- What is read here is what was asked for, whole: every read is hashed, and a file that is not what it was is forgotten,
  so it is fetched anew.
- A file has its final name only when all of it is there: it is written under another one and renamed. What a crash
  leaves under the other name is removed at the next start. Nothing is synced: a file that a loss of power has torn
  has another digest, and digests are what the next start believes.
- Nothing is ever removed but by `drop`: who takes data away for another reason (retention) goes through it as well.
"""

from __future__ import annotations

import errno
import hashlib
import logging
from typing import Protocol

from node.partitions.errors import BadPartition, NoSuchPartition, NotFetched, NotRemoved
from node.partitions.names import SIZE_BYTES_MAX, Wanted, checked_name, table_and_day

log = logging.getLogger(__name__)

INCOMING = ".incoming-"
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Disk(Protocol):
    """One folder. Every method may raise OSError; each is one step, and a crash may leave any of them half done."""

    async def names(self) -> list[str]: ...
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


class Shelf:
    """`held`: what is here, by name, as of the last `scan` and what was done since."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.held: dict[str, Wanted] = {}
        self._written = 0

    async def scan(self) -> None:
        """Read everything; remove what was half written. A file that is no partition is left alone. Raises OSError."""
        found: dict[str, Wanted] = {}
        for file in sorted(await self.disk.names()):
            if file.startswith(INCOMING):
                await self.disk.remove(file)
            elif (name := name_in(file)) is None:
                log.warning("%s in the folder of the partitions is no partition; it is left alone", file[:80])
            else:
                try:
                    found[name] = version_of(await self.disk.read(file, SIZE_BYTES_MAX + 1))
                except (OSError, BadPartition) as error:
                    log.warning("partition %s can't be read, and is fetched anew: %s", name, error)
                    found[name] = UNREADABLE
        self.held = found

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
