"""The local segments, as files that are identified by the digest of their rows or bytes (`verification.py`).

Guarantees, and why they hold:
- A read returns exactly the requested version: every read is verified, and a damaged file is dropped from the index, so
  that it is fetched again.
- A file gets its final name only when it is complete: it is written under another name and renamed. The next start
  removes leftovers of a crash. Files that have an origin are not synced: a file that a power loss has torn has another
  digest. `scan` lists it as another version, so callers compare the digest with that of the assignment or record.
- Only `drop` and `purge` remove files. An expired segment is moved into the trash, which `restore` undoes, and later
  purged. For both, the caller's condition is evaluated again in the acting thread, directly before the system call, so
  a node that was paused does not act on outdated knowledge (issue 4, F11).
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from typing import Protocol

from palisade.base.network_reason import reason_of
from palisade.segments.names import SIZE_BYTES_MAX, TRASH, Wanted, checked_name
from palisade.segments.verification import REMEMBERED, Verifier
from palisade.wire.segment_errors import BadSegment, NoSuchSegment, NotFetched, NotRemoved

log = logging.getLogger(__name__)

INCOMING = ".incoming-"
REMEMBERED_BYTES_MAX = 64 << 20
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Disk(Protocol):
    """One folder. Every method may raise OSError, and a crash may leave any of them half done."""

    async def names(self) -> list[str]:
        """The files; those in the trash with the prefix TRASH."""
        ...

    async def read(self, file: str, limit: int) -> bytes:
        """At most `limit` bytes. Raises FileNotFoundError."""
        ...

    async def write(self, file: str, content: bytes) -> None: ...
    async def rename(self, old: str, new: str) -> None:
        """Atomic: afterwards either nothing has changed, or `new` is the old file."""
        ...

    async def sync(self, file: str) -> None:
        """Its content and name survive a power loss."""
        ...

    async def remove(self, file: str) -> None:
        """Succeeds if the file does not exist."""
        ...

    async def rename_if(self, old: str, new: str, still: Callable[[], bool]) -> bool:
        """`rename` if `still()`, called directly before it, is true. Returns whether it was done. Raises as `still`."""
        ...

    async def remove_if(self, file: str, still: Callable[[], bool]) -> bool:
        """`remove` if `still()`, as in `rename_if`."""
        ...


class SegmentStore:
    """`held`: the local segments by name. `trashed`: those in the trash. `scan` reads both from the disk; every other
    method keeps them up to date."""

    def __init__(self, disk: Disk, verifier: Verifier | None = None) -> None:
        self.disk = disk
        self.verifier = verifier or Verifier()
        self.held: dict[str, Wanted] = {}
        self.trashed: dict[str, Wanted] = {}
        self._written = 0
        self._misfits: set[str] = set()

    async def scan(self) -> None:
        """Verify all files; remove incomplete ones if the disk permits. A file that is not a segment is ignored.

        Raises OSError if the folder cannot be listed.
        """
        held: dict[str, Wanted] = {}
        trashed: dict[str, Wanted] = {}
        files = sorted(await self.disk.names())
        if REMEMBERED in files:
            await self._recall()
        for file in files:
            if file == REMEMBERED:
                continue
            if file.startswith(INCOMING):
                await self._forget_incoming(file)
            elif (name := name_in(file.removeprefix(TRASH))) is None:
                log.warning("file ignored, not a segment: file=%s", file[:80])
            else:
                (trashed if file.startswith(TRASH) else held)[name] = await self._version(file)
        self.held, self.trashed = held, trashed

    async def _recall(self) -> None:
        try:
            self.verifier.load(await self.disk.read(REMEMBERED, REMEMBERED_BYTES_MAX))
        except OSError as error:
            log.warning("list of verified files unreadable, verifying all files: error=%s", error)

    async def remember(self) -> None:
        """Store the list of verified files if it has changed, so that the next start does not decode them again."""
        if not self.verifier.is_changed:
            return
        versions = [each.digest for each in (*self.held.values(), *self.trashed.values())]
        incoming = INCOMING + REMEMBERED
        try:
            await self.disk.write(incoming, self.verifier.remembered(versions))
            await self.disk.rename(incoming, REMEMBERED)
        except OSError as error:
            await self._forget_incoming(incoming, known=error.errno)
            log.warning("list of verified files not written, retrying at the next change: error=%s", error)

    async def _version(self, file: str) -> Wanted:
        try:
            return await self.verifier.of(await self.disk.read(file, SIZE_BYTES_MAX + 1))
        except (OSError, BadSegment) as error:
            log.warning("segment unreadable, fetching it again if assigned: file=%s error=%s", file, error)
            return UNREADABLE

    def versions(self) -> dict[str, str]:
        """Digest by name; empty for a damaged segment."""
        return {name: held.digest if held is not UNREADABLE else "" for name, held in self.held.items()}

    def has(self, name: str, digest: str) -> bool:
        held = self.held.get(name)
        return held is not None and held is not UNREADABLE and held.digest == digest

    def fits(self, name: str, digest: str, rows: int) -> bool:
        """Whether the segment is local in this version and has this number of rows."""
        if not self.has(name, digest):
            return False
        found = self.verifier.rows(digest)
        if found in (None, rows):
            return True
        if name not in self._misfits:
            self._misfits.add(name)
            log.warning(
                "copy not announced, its record has another row count; publish it again: name=%s rows=%s record=%d",
                name,
                found,
                rows,
            )
        return False

    def is_whole(self, name: str) -> bool:
        """Whether the segment is local and readable, in any version."""
        return self.held.get(name, UNREADABLE) is not UNREADABLE

    async def put(self, name: str, wanted: Wanted, content: bytes, *, synced: bool = False) -> None:
        """`content` must be verified. `synced`: it survives a power loss.

        Raises NotFetched if the write fails; an older version stays."""
        self._written += 1
        incoming = f"{INCOMING}{self._written}-{file_of(name)}"
        try:
            await self.disk.write(incoming, content)
            if synced:
                await self.disk.sync(incoming)
            await self.disk.rename(incoming, file_of(name))
            if synced:
                await self.disk.sync(file_of(name))
        except OSError as error:
            await self._forget_incoming(incoming, known=error.errno)
            raise NotFetched(f"segment {name} not stored: {why_not_written(error)}; retrying") from error
        self.held[name] = wanted

    async def _forget_incoming(self, incoming: str, known: int | None = None) -> None:
        """`known`: the number of an error that is already reported, and not logged again."""
        try:
            await self.disk.remove(incoming)
        except OSError as error:
            if error.errno != known:
                log.warning("temporary file not removed until the next start: file=%s error=%s", incoming, error)

    async def drop(self, name: str) -> None:
        """Remove a segment. Raises NotRemoved; even then the segment is no longer served."""
        held = self.held.pop(name, None)
        try:
            await self.disk.remove(file_of(name))
        except OSError as error:
            if held is not None:
                self.held[name] = UNREADABLE
            raise NotRemoved(f"cannot remove segment {name}: {error}; check the permissions of its folder") from error

    async def trash(self, name: str, still: Callable[[], bool]) -> bool:
        """Move a segment into the trash, where it is not served. Returns whether it was moved.

        Raises NotRemoved, and as `still`."""
        held = self.held.pop(name)
        done = False
        try:
            done = await self.disk.rename_if(file_of(name), TRASH + file_of(name), still)
        except OSError as error:
            raise NotRemoved(f"cannot move segment {name} into the trash: {error}; check its folder") from error
        finally:
            (self.trashed if done else self.held)[name] = held
        return done

    async def purge(self, name: str, still: Callable[[], bool]) -> bool:
        """Remove a segment from the trash, permanently. Returns whether it was removed.

        Raises NotRemoved, and as `still`."""
        try:
            done = await self.disk.remove_if(TRASH + file_of(name), still)
        except OSError as error:
            raise NotRemoved(f"cannot remove segment {name} from the trash: {error}; check its folder") from error
        if done:
            self.trashed.pop(name, None)
        return done

    async def restore(self, name: str) -> None:
        """Move a segment back from the trash. Raises NotFetched."""
        try:
            await self.disk.rename(TRASH + file_of(name), file_of(name))
        except FileNotFoundError as error:
            self.trashed.pop(name, None)
            raise NotFetched(f"segment {name} is no longer in the trash; fetching it") from error
        except OSError as error:
            raise NotFetched(f"cannot restore segment {name} from the trash: {error}; check its folder") from error
        self.held[name] = self.trashed.pop(name)

    async def read(self, name: str, digest: str | None = None) -> tuple[bytes, Wanted]:
        """Raises NoSuchSegment, also for a damaged segment, which is dropped from the index."""
        held = self.held.get(name)
        if held is None or held is UNREADABLE or (digest is not None and held.digest != digest):
            version = f" with digest {digest}" if digest else ""
            raise NoSuchSegment(f"this node does not have segment {name}{version}; use another node")
        try:
            content = await self.disk.read(file_of(name), SIZE_BYTES_MAX + 1)
            if await self.verifier.of(content) == held:
                return content, held
            trouble = "its content has changed"
        except (OSError, BadSegment) as error:
            trouble = str(error)
        if self.held.get(name) is held:
            log.warning("local segment damaged, fetching it again: name=%s error=%s", name, trouble)
            self.held[name] = UNREADABLE
        raise NoSuchSegment(f"segment {name} is damaged on this node: {trouble}; use another node")


UNREADABLE = Wanted("sha256:" + "0" * 64, 0)
"""Stands for a damaged segment. It matches no assignment, so it is evicted and fetched again."""


def why_not_written(error: OSError) -> str:
    """Without the name of the temporary file, so that a repeated error has the same text and is logged once."""
    reason = reason_of(error)
    if error.errno in NO_ROOM:
        return f"no space left ({reason}); free disk space"
    return f"the write failed: {reason}; check the disk of the node"


def file_of(name: str) -> str:
    """Raises BadSegment."""
    return checked_name(name).replace("/", "@")


def name_in(file: str) -> str | None:
    """None if the file is not a segment."""
    try:
        return checked_name(file.replace("@", "/"))
    except BadSegment:
        return None
