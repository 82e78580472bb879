"""The rows of one realtime segment on the disk of its ingester, in the files of a journal (`journal/log.py`).

The first entry is the header, each further entry is a row, and the last entry of a closed segment marks its end. A
batch is one block: it is stored and synced as a whole, or not at all. `rows` counts synced rows only, so no crash
reduces it. A torn end, which was never acknowledged, is removed when the log is opened; damage of synced entries is an
error.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from palisade.catalog.errors import BadField, BadRows
from palisade.catalog.realtime_rows import Columns, columns_from, columns_shape, decoded, size_of
from palisade.catalog.rows_digest import Value
from palisade.catalog.segment import Segment, parse_segment
from palisade.catalog.timeline import Interval
from palisade.journal.blocks import BLOCK_BYTES_MAX, FILE_HEADER_BYTES, is_file_name, make_block, read_block
from palisade.journal.errors import JournalDamaged
from palisade.journal.files import JournalFiles
from palisade.journal.log import JournalLog

SEQUENCE = 1
CLOSED = b"closed"


class RealtimeFolder(Protocol):
    """A folder with one directory for each realtime segment, named by `segment_store.file_of`. Raises OSError."""

    async def names(self) -> list[str]: ...
    def files(self, name: str) -> JournalFiles:
        """Creates the directory. Raises DirectoryInUse."""
        ...

    async def remove(self, name: str) -> None:
        """Removes the directory with its files. Durable on return."""
        ...


@dataclass(frozen=True, slots=True)
class LogHeader:
    """`writer`: the name under which a client opens the segment again; empty without one."""

    segment: Segment
    columns: Columns
    writer: str = ""

    def to_bytes(self) -> bytes:
        value = {"segment": str(self.segment), "columns": columns_shape(self.columns), "writer": self.writer}
        return json.dumps(value, separators=(",", ":")).encode()

    def is_of(self, data_source: str, interval: Interval, writer: str) -> bool:
        return (self.segment.data_source, self.segment.id.interval, self.writer) == (data_source, interval, writer)

    @staticmethod
    def from_bytes(packed: bytes) -> LogHeader:
        """Raises JournalDamaged."""
        try:
            value = json.loads(packed)
            return LogHeader(parse_segment(value["segment"]), columns_from(value["columns"]), value["writer"])
        except (ValueError, KeyError, TypeError, BadField) as error:
            raise JournalDamaged(f"the header of a realtime segment is not readable ({error})") from None


async def header_in(files: JournalFiles) -> LogHeader | None:
    """The header of a log that cannot be opened; None if it cannot be read."""
    try:
        names = [name for name in await files.names() if is_file_name(name)]
        block = read_block(await files.read(names[0]), FILE_HEADER_BYTES) if names else None
        return LogHeader.from_bytes(next(block.entries())[1]) if block is not None else None
    except (JournalDamaged, OSError):
        return None


class RealtimeLog:
    """`rows`: the number of synced rows. `closed`: the log accepts no more rows. `size_bytes`: of the rows, in the form
    of `rows_digest`. `failed`: a write failed, or stored rows are damaged; nothing is written until it is opened again.
    """

    def __init__(self, header: LogHeader, journal: JournalLog, files: JournalFiles) -> None:
        self.header = header
        self.rows = 0
        self.size_bytes = 0
        self.closed = False
        self.failed = False
        self._journal, self.files = journal, files

    @staticmethod
    async def create(files: JournalFiles, header: LogHeader) -> RealtimeLog:
        """Durable on return. Raises OSError."""
        found = RealtimeLog(header, JournalLog(files), files)
        await found._journal.open()
        await found._store([header.to_bytes()])
        return found

    @staticmethod
    async def open(files: JournalFiles) -> RealtimeLog | None:
        """None if no header was stored, and therefore no row. Raises JournalDamaged, NewerFormat, OSError."""
        journal = JournalLog(files)
        await journal.open()
        entries = (entry async for block in journal.blocks_after(0) for _, entry in block.entries())
        first = await anext(entries, None)
        if first is None:
            return None
        found = RealtimeLog(LogHeader.from_bytes(first), journal, files)
        async for entry in entries:
            if entry == CLOSED:
                found.closed = True
            else:
                found.rows += 1
                found.size_bytes += size_of(found.header.columns, decoded(found.header.columns, entry))
        return found

    async def append(self, rows: Sequence[bytes], size_bytes: int) -> None:
        """Durable on return. One call at a time. Raises BadRows; OSError, after which nothing is written until the log
        is opened again."""
        if sum(map(len, rows)) + 8 * len(rows) > BLOCK_BYTES_MAX:
            raise BadRows(f"a batch has at most {BLOCK_BYTES_MAX} bytes: divide it")
        await self._store(rows)
        self.rows += len(rows)
        self.size_bytes += size_bytes

    async def close(self) -> None:
        """End the log: no row can be added afterwards. Durable on return."""
        await self._store([CLOSED])
        self.closed = True

    async def _store(self, entries: Sequence[bytes]) -> None:
        if self.failed:
            raise OSError("an earlier write or read failed: nothing is written until the node starts again")
        self.failed, journal = True, self._journal
        if not journal.has_room:
            await journal.make_room()
        journal.append(make_block(journal.end, SEQUENCE, entries))
        await journal.sync()
        self.failed = False

    async def entries_from(self, row: int, count: int) -> list[bytes]:
        """At most `count` stored rows, beginning with number `row` (0: the first)."""
        found: list[bytes] = []
        async for number, entry in self._entries(row + 2):
            if len(found) == count:
                break
            if number >= row + 2:
                found.append(entry)
        return found

    async def values(self) -> list[list[Value]]:
        """All rows, decoded."""
        columns = self.header.columns
        rows = [decoded(columns, entry) async for number, entry in self._entries(2) if number <= self.rows + 1]
        if len(rows) != self.rows:
            raise JournalDamaged(f"segment {self.header.segment} has {len(rows)} of {self.rows} rows on disk")
        return rows

    async def _entries(self, number: int) -> AsyncIterator[tuple[int, bytes]]:
        """The entries with their numbers in the journal, beginning with the block that has entry `number`."""
        async for block in self._journal.blocks_after(number - 1):
            for each in block.entries():
                yield each

    def release(self) -> None:
        """Closes the files."""
        self.files.close()
