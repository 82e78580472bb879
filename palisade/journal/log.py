"""The entries of one copy: files of blocks, opened with the repair of a torn end, appended, read and cut.

`append` writes, `sync` makes durable what was written before it began. A file is closed at `FILE_BYTES_MAX`; the next
one begins after everything before it was synced.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from palisade.journal.blocks import (
    BLOCK_BYTES_MAX,
    BLOCK_HEADER_BYTES,
    FILE_HEADER_BYTES,
    REMEDY,
    JournalBlock,
    JournalEnd,
    check_torn,
    file_header,
    file_name,
    is_file_name,
    read_block,
    read_file_header,
    scan,
    stored_end,
)
from palisade.journal.errors import JournalDamaged
from palisade.journal.files import JournalFiles
from palisade.journal.history import Run, extended

FILE_BYTES_MAX = 64 << 20
MARK_BYTES = 64 << 10
"""Distance in bytes between two offsets of a file that are kept in memory."""
RECENT_BYTES = 8 << 20
"""Size of the newest blocks, which are kept in memory for readers near the end."""
READ_BYTES = 1 << 20


@dataclass(slots=True)
class LogFile:
    """One file. `marks`: (first entry, offset) of some blocks, in order."""

    name: str
    before: JournalEnd
    size: int = FILE_HEADER_BYTES
    marks: list[tuple[int, int]] = field(default_factory=list)

    def note(self, first: int, offset: int) -> None:
        if not self.marks or offset - self.marks[-1][1] >= MARK_BYTES:
            self.marks.append((first, offset))

    def offset_before(self, number: int) -> int:
        place = bisect_right(self.marks, number, key=lambda mark: mark[0]) - 1
        return self.marks[place][1] if place >= 0 else FILE_HEADER_BYTES


class JournalLog:
    """`end`: the end of the written entries. `runs`: where the entries of each activation sequence end.
    `removed_bytes`: the size of the torn end that `open` removed."""

    def __init__(
        self, files: JournalFiles, *, file_bytes_max: int = FILE_BYTES_MAX, preallocates: bool = False
    ) -> None:
        """`preallocates`: reserves the space of the newest file, which makes syncs faster."""
        self._files = files
        self._preallocates = preallocates
        self._file_bytes_max = file_bytes_max
        self._segments: list[LogFile] = []
        self._recent: deque[JournalBlock] = deque()
        self._recent_bytes = 0
        self.end = JournalEnd()
        self.runs: list[Run] = []
        self.removed_bytes = 0
        self._written_bytes = self._synced_bytes = 0

    async def open(self, *, replica: bool = False) -> None:
        """Reads every file, so that no damaged file is served. `replica`: the copy was a replica when it stopped.

        Raises JournalDamaged, NewerFormat, OSError."""
        names = [name for name in await self._files.names() if is_file_name(name)]
        self._segments, self.end, self.runs = [], JournalEnd(), []
        self._forget_recent()
        for name in names:
            await self._open_file(name, newest=name == names[-1], replica=replica)
        if self._segments:
            await self.sync()  # the last writes of a killed process may not be on the disk yet
            await self._reserve()

    async def _open_file(self, name: str, *, newest: bool, replica: bool) -> None:
        data = await self._files.read(name)
        before = read_file_header(data, name)
        if before is None and newest and len(data) <= FILE_HEADER_BYTES:
            self.removed_bytes += len(data)
            await self._files.remove(name)
            return
        if before is None or before != self.end or name != file_name(before.last + 1):
            raise JournalDamaged(f"{name} does not continue after entry {self.end.last}", REMEDY)
        segment = LogFile(name, before)
        for offset, block in scan(data, name, before):
            segment.note(block.first, offset)
            segment.size = offset + len(block.data)
            self.end = block.end
            extended(self.runs, block)
        if segment.size < len(data):
            if not newest:
                raise JournalDamaged(f"{name} is damaged at byte {segment.size}, and newer files follow", REMEDY)
            stored = stored_end(data, segment.size)
            if stored > segment.size:
                check_torn(data, segment.size, name, replica=replica)
                self.removed_bytes += stored - segment.size
            await self._files.truncate(name, segment.size)
        self._segments.append(segment)

    async def make_room(self) -> None:
        """Begin a new file if the present one is full. Everything written must be synced before."""
        if not self._segments or self._segments[-1].size >= self._file_bytes_max:
            segment = LogFile(file_name(self.end.last + 1), self.end)
            await self._files.create(segment.name, file_header(self.end))
            self._segments.append(segment)
            await self._reserve()

    async def _reserve(self) -> None:
        """Reserve the space of the newest file. A start removes unused space and reserves it again."""
        newest = self._segments[-1]
        if self._preallocates and newest.size < self._file_bytes_max:
            await self._files.reserve(newest.name, self._file_bytes_max)

    @property
    def has_file(self) -> bool:
        return bool(self._segments)

    @property
    def has_room(self) -> bool:
        return bool(self._segments) and self._segments[-1].size < self._file_bytes_max

    def append(self, block: JournalBlock) -> None:
        """Write a block, which must continue the journal. `has_room` must be true."""
        if block.before != self.end:
            raise JournalDamaged(f"a block that begins with entry {block.first} can't follow entry {self.end.last}")
        segment = self._segments[-1]
        self._files.write(segment.name, block.data)
        segment.note(block.first, segment.size)
        segment.size += len(block.data)
        self._written_bytes += len(block.data)
        self.end = block.end
        extended(self.runs, block)
        self._recent.append(block)
        self._recent_bytes += len(block.data)
        while self._recent_bytes > RECENT_BYTES and len(self._recent) > 1:
            self._recent_bytes -= len(self._recent.popleft().data)

    async def sync(self) -> None:
        written = self._written_bytes
        await self._files.sync(self._segments[-1].name)
        self._synced_bytes = max(self._synced_bytes, written)

    @property
    def size_bytes(self) -> int:
        return sum(each.size for each in self._segments)

    @property
    def unsynced_bytes(self) -> int:
        return self._written_bytes - self._synced_bytes

    # Reading.

    async def blocks_from(self, number: int, size: int = READ_BYTES) -> list[JournalBlock]:
        """About `size` bytes of blocks, beginning with the block of entry `number`; empty at the end."""
        if number > self.end.last:
            return []
        if self._recent and self._recent[0].first <= number:
            return self._from_recent(number, size)
        place = bisect_right(self._segments, number, key=lambda each: each.before.last + 1) - 1
        return await self._from_file(self._segments[max(0, place)], max(1, number), size)

    def _from_recent(self, number: int, size: int) -> list[JournalBlock]:
        found: deque[JournalBlock] = deque()
        for block in reversed(self._recent):
            if block.last < number:
                break
            found.appendleft(block)
        taken: list[JournalBlock] = []
        for block in found:
            if size <= 0:
                break
            taken.append(block)
            size -= len(block.data)
        return taken

    async def _from_file(self, segment: LogFile, number: int, size: int) -> list[JournalBlock]:
        offset, end, found = segment.offset_before(number), segment.size, list[JournalBlock]()
        while offset < end and size > 0 and not found:
            length = min(end - offset, MARK_BYTES + READ_BYTES + BLOCK_BYTES_MAX + BLOCK_HEADER_BYTES)
            data, at = await self._files.read_at(segment.name, offset, length), 0
            while size > 0 and (block := read_block(data, at)) is not None:
                at += len(block.data)
                if block.last >= number:
                    found.append(block)
                    size -= len(block.data)
            if not at:
                raise JournalDamaged(f"{segment.name} is damaged at byte {offset}", REMEDY)
            offset += at
        return found

    async def blocks_after(self, position: int) -> AsyncIterator[JournalBlock]:
        """All blocks with later entries."""
        while found := await self.blocks_from(position + 1):
            for block in found:
                yield block
            position = found[-1].last

    async def chain_at(self, number: int) -> int | None:
        """The chain at the end of the block that ends with `number`; None if none does."""
        if number == 0:
            return 0
        for block in await self.blocks_from(number, 1):
            return block.chain if block.last == number else None
        return None

    # Cutting.

    async def cut(self, end: JournalEnd) -> None:
        """Remove everything after `end`, newest first, so that a crash leaves a journal. Durable on return."""
        self._forget_recent()
        while self._segments and self._segments[-1].before.last >= end.last:
            await self._files.remove(self._segments[-1].name)
            self._segments.pop()
        if self._segments:
            segment, size = self._segments[-1], FILE_HEADER_BYTES
            async for block in self.blocks_after(segment.before.last):
                if block.last > end.last:
                    break
                size += len(block.data)
            await self._files.truncate(segment.name, size)
        await self.open()

    def _forget_recent(self) -> None:
        self._recent.clear()
        self._recent_bytes = 0
