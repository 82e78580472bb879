"""The format of journal files: blocks of entries, each with a checksum of all entries up to it. Pure.

A file begins with a header; blocks follow. A block is what one write and one sync stored: entries with consecutive
numbers of one activation sequence. The replica stores the same bytes.

    file    magic "PALJ", u32 format, u64 number of the first entry, u64 chain before it, u64 checksum of these
            every format has this header, so that a flipped bit is no newer format
    block   magic "PJBL", u32 body length, u64 first entry, u64 sequence, u32 entries, u64 chain before, u64 chain
    body    for each entry: u32 length, content

The *chain* is XXH3-64 over the chain before, the fields and the body, so equal chains at one number mean equal
journals up to there.

The active copy writes a block only after the previous one is synced, and an interrupted write leaves a short file or
sectors of zeros. Thus an unreadable block is damage if a valid block follows it, or if no part of it is missing. Any
other unreadable block at the end was never acknowledged, and is removed. Zeros after the last block are reserved space
that was not used.

A replica writes up to `UNSYNCED_BYTES_MAX` before a sync, and after a power failure a later part may be stored without
an earlier one. Thus in a copy that was a replica, valid blocks may follow a block with a missing part, within that
distance from the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError  # noqa: N812

from xxhash import xxh3_64_intdigest

from palisade.journal.errors import EntryRefused, JournalDamaged, NewerFormat

FORMAT = 1
FILE_MAGIC, BLOCK_MAGIC = b"PALJ", b"PJBL"
ENTRY_BYTES_MAX = 1 << 20
BLOCK_BYTES_MAX = 4 << 20
SECTOR_BYTES = 512
UNSYNCED_BYTES_MAX = 1 << 20
"""Beyond this, a replica syncs before it writes the next block."""
_FILE = Struct(">4sIQQ")
_BLOCK = Struct(">4sIQQIQ")
_CHAIN = Struct(">Q")
_LENGTH = Struct(">I")
FILE_HEADER_BYTES = _FILE.size + _CHAIN.size
BLOCK_HEADER_BYTES = _BLOCK.size + _CHAIN.size


@dataclass(frozen=True, slots=True)
class JournalEnd:
    """The end of a journal, or of a part: the number of the last entry (0: none) and the chain there."""

    last: int = 0
    chain: int = 0


@dataclass(frozen=True, slots=True)
class JournalBlock:
    """`data`: the whole block."""

    first: int
    last: int
    sequence: int
    chain_before: int
    chain: int
    data: bytes

    @property
    def before(self) -> JournalEnd:
        return JournalEnd(self.first - 1, self.chain_before)

    @property
    def end(self) -> JournalEnd:
        return JournalEnd(self.last, self.chain)

    def entries(self) -> Iterator[tuple[int, bytes]]:
        at, data = BLOCK_HEADER_BYTES, self.data
        for number in range(self.first, self.last + 1):
            (length,) = _LENGTH.unpack_from(data, at)
            at += _LENGTH.size + length
            yield number, data[at - length : at]


def check_entry(content: bytes) -> None:
    """Raises EntryRefused."""
    if type(content) is not bytes:
        raise EntryRefused(f"an entry is bytes, not {type(content).__name__}: encode it first, such as text.encode()")
    if len(content) > ENTRY_BYTES_MAX:
        raise EntryRefused(f"an entry of {len(content)} bytes; the limit is {ENTRY_BYTES_MAX}: split it")


def make_block(before: JournalEnd, sequence: int, contents: Sequence[bytes]) -> JournalBlock:
    pack = _LENGTH.pack
    body = b"".join(part for content in contents for part in (pack(len(content)), content))
    first, last = before.last + 1, before.last + len(contents)
    head = _BLOCK.pack(BLOCK_MAGIC, len(body), first, sequence, len(contents), before.chain)
    chain = xxh3_64_intdigest(head + body, before.chain)
    return JournalBlock(first, last, sequence, before.chain, chain, b"".join((head, _CHAIN.pack(chain), body)))


def read_block(data: bytes | memoryview, offset: int = 0) -> JournalBlock | None:
    """The block at `offset`; None if there is no complete, valid one."""
    try:
        magic, length, first, sequence, count, before = _BLOCK.unpack_from(data, offset)
        (chain,) = _CHAIN.unpack_from(data, offset + _BLOCK.size)
    except StructError:
        return None
    end = offset + BLOCK_HEADER_BYTES + length
    if magic != BLOCK_MAGIC or end > len(data) or count < 1 or length > 2 * BLOCK_BYTES_MAX:
        return None
    whole = bytes(data[offset:end])
    if xxh3_64_intdigest(whole[: _BLOCK.size] + whole[BLOCK_HEADER_BYTES:], before) != chain:
        return None
    return JournalBlock(first, first + count - 1, sequence, before, chain, whole)


def read_blocks(data: bytes, after: JournalEnd) -> list[JournalBlock]:
    """Blocks of a message, which continue `after`. Raises JournalDamaged."""
    found, offset = [], 0
    while offset < len(data):
        block = read_block(data, offset)
        if block is None or block.before != after:
            raise JournalDamaged(f"the received block after entry {after.last} is invalid; it was not stored")
        found.append(block)
        after, offset = block.end, offset + len(block.data)
    return found


# Files.


def file_name(first: int) -> str:
    return f"{first:020d}.journal"


def is_file_name(name: str) -> bool:
    return len(name) == 28 and name.endswith(".journal") and name[:20].isdigit()


def file_header(before: JournalEnd) -> bytes:
    head = _FILE.pack(FILE_MAGIC, FORMAT, before.last + 1, before.chain)
    return head + _CHAIN.pack(xxh3_64_intdigest(head))


def read_file_header(data: bytes, name: str) -> JournalEnd | None:
    """The end of the journal before this file; None if the header is incomplete. Raises NewerFormat, JournalDamaged."""
    if len(data) < FILE_HEADER_BYTES or not any(data[:FILE_HEADER_BYTES]):
        return None
    magic, version, first, chain = _FILE.unpack_from(data)
    if magic != FILE_MAGIC or _CHAIN.unpack_from(data, _FILE.size)[0] != xxh3_64_intdigest(data[: _FILE.size]):
        raise JournalDamaged(f"the header of {name} is damaged", REMEDY)
    if version > FORMAT:
        raise NewerFormat(f"{name} has format {version}, this version reads up to {FORMAT}: install a newer version")
    return JournalEnd(first - 1, chain)


REMEDY = (
    "move the directory aside and start this copy empty, so that the other copy fills it; without another copy, "
    "restore the file from a backup"
)


def scan(data: bytes, name: str, before: JournalEnd) -> Iterator[tuple[int, JournalBlock]]:
    """The blocks of a file, with their offsets, up to the first invalid one."""
    offset = FILE_HEADER_BYTES
    while offset < len(data):
        block = read_block(data, offset)
        if block is None:
            return
        if block.before != before:
            raise JournalDamaged(f"{name} does not continue after entry {before.last}", REMEDY)
        yield offset, block
        before, offset = block.end, offset + len(block.data)


def stored_end(data: bytes, offset: int) -> int:
    """Where the last valid block at or after `offset` ends, or the last byte that is not zero: zeros at the end of a
    file may be reserved space. At least `offset`."""
    end = offset
    found = next_block(data, offset)
    while found is not None and (block := read_block(data, found)) is not None:
        end = found + len(block.data)
        found = next_block(data, end)
    return max(end, len(data.rstrip(b"\0")))


def check_torn(data: bytes, offset: int, name: str, *, replica: bool = False) -> None:
    """Checks that the invalid block at `offset`, in the last file of the journal, is from an interrupted write.
    `replica`: the copy was a replica when it stopped.

    Raises JournalDamaged if it is not."""
    later = next_block(data, offset + 1)
    if later is not None:
        lost = data[: later // SECTOR_BYTES * SECTOR_BYTES]  # the valid block's own sectors were stored
        if replica and stored_end(data, later) - offset <= UNSYNCED_BYTES_MAX and has_empty_sector(lost, offset):
            return
        raise JournalDamaged(f"{name} is damaged at byte {offset}; valid entries follow", REMEDY)
    rest = data[offset:]
    if len(rest) < BLOCK_HEADER_BYTES:
        return
    end = offset + BLOCK_HEADER_BYTES + _BLOCK.unpack_from(rest)[1]
    if has_empty_sector(data[:end], offset):
        return
    if rest[:4] != BLOCK_MAGIC or end <= len(data):
        raise JournalDamaged(f"{name} is damaged at byte {offset}", REMEDY)


def next_block(data: bytes, offset: int) -> int | None:
    """The offset of the first valid block at or after `offset`."""
    at = data.find(BLOCK_MAGIC, offset)
    while at >= 0 and read_block(data, at) is None:
        at = data.find(BLOCK_MAGIC, at + 1)
    return at if at >= 0 else None


def has_empty_sector(data: bytes, offset: int) -> bool:
    """Whether a sector, or the part of one from `offset` on, has only zeros."""
    while offset < len(data):
        end = min(len(data), (offset // SECTOR_BYTES + 1) * SECTOR_BYTES)
        if not any(data[offset:end]):
            return True
        offset = end
    return False
