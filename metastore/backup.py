"""The format of a backup: the snapshot of one revision, preceded by a header and followed by totals.

    file     magic (16) + frames
    frame    kind (1), length (4), crc32 of kind, length and payload (4), payload
    HEADER   the first frame: a map, `BackupHeader`; contains the format of the rest
    PIECE    a piece of `snapshot.py`, in order; the last one is the trailer of the snapshot
    END      the last frame: [pieces, bytes before this frame, blake2b-256 of all of them]
    BROKEN   instead of END: the reason why the sending node could not continue

Guarantee: a backup that was altered, truncated or extended, or has missing or repeated parts, is refused before it is
used; the error names the place and the remedy. The checksum of a frame covers each byte, the chain of the pieces their
order, and the hash at the end the whole file. Pure; `node/` moves the bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from hashlib import blake2b
from struct import Struct
from typing import Any

import msgpack

from palisade.base.counted import counted
from palisade.base.snapshots import SnapshotGone, SnapshotInvalid, SnapshotMeta
from palisade.metastore.errors import StoreCorrupt
from palisade.metastore.memory_map import MemoryMap
from palisade.metastore.ordered_map import Table
from palisade.metastore.snapshot import Assembly, Run, StoreSnapshotReader
from palisade.metastore.state import StoreState
from palisade.metastore.store_errors import BackupInvalid

MAGIC = b"palisade-backup\n"
FORMAT_VERSION = 2
"""2: rows of leases in milliseconds; rows of format 1 are read as well."""
HASH_BYTES = 32
FRAME_BYTES_MAX = 128 * 1024 * 1024
"""Far larger than a piece with the largest configurable value."""
HEADER, PIECE, END, BROKEN = 1, 2, 3, 4
_PREFIX = Struct(">BI")
_FRAME = Struct(">BII")
REMEDY = "take another backup, or another copy of this one"


@dataclass(frozen=True, slots=True)
class BackupHeader:
    """`cluster` is the name, `cluster_id` and `generation` the lineage. `index` and `term`: the position in the log.
    `size_bytes`: the approximate size of the file, None if unknown. `snapshot`: the id of the stream."""

    format: int
    created_by: str
    created_ms: int
    cluster: str
    cluster_id: str
    generation: int
    revision: int
    minimal_revision: int
    keys: int
    index: int
    term: int
    snapshot: str
    size_bytes: int | None

    @property
    def snapshot_meta(self) -> SnapshotMeta:
        return SnapshotMeta(self.snapshot, self.index, self.term, self.size_bytes)


@dataclass(frozen=True, slots=True)
class BackupEnd:
    pieces: int
    size_bytes: int
    digest: bytes


def state_below(reader: StoreSnapshotReader) -> StoreState:
    """The numbers of the store in the snapshot, which may be older than the current ones."""
    tables = MemoryMap()
    for _, key, value in reader.rows(Table.META):
        tables.put(Table.META, key, value)
    return StoreState(tables)


def header_of(reader: StoreSnapshotReader, *, cluster: str, created_by: str, created_ms: int) -> BackupHeader:
    state = state_below(reader)
    return BackupHeader(
        format=FORMAT_VERSION,
        created_by=created_by,
        created_ms=created_ms,
        cluster=cluster,
        cluster_id=state.lineage.cluster_id,
        generation=state.lineage.generation,
        revision=state.revision,
        minimal_revision=state.minimal_revision,
        keys=state.keys,
        index=reader.meta.index,
        term=reader.meta.term,
        snapshot=reader.meta.id,
        size_bytes=reader.meta.size_bytes,
    )


class BackupEncoder:
    """The bytes of a backup in order: `begin`, each `piece`, then `end` or `broken`."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=HASH_BYTES)
        self._bytes = self._pieces = 0

    def begin(self, header: BackupHeader) -> bytes:
        return self._count(MAGIC) + self._count(frame(HEADER, msgpack.packb(asdict(header))))

    def piece(self, piece: bytes) -> bytes:
        self._pieces += 1
        return self._count(frame(PIECE, piece))

    def end(self) -> bytes:
        return frame(END, msgpack.packb([self._pieces, self._bytes, self._hash.digest()]))

    def broken(self, reason: str) -> bytes:
        return frame(BROKEN, msgpack.packb(reason))

    def _count(self, data: bytes) -> bytes:
        self._hash.update(data)
        self._bytes += len(data)
        return data


def frames_of(reader: StoreSnapshotReader, header: BackupHeader) -> Iterator[bytes]:
    """The bytes of a complete backup, one piece of the state at a time.

    Raises SnapshotGone or StoreCorrupt if the state can no longer be read, after yielding the frame BROKEN."""
    encoder, number = BackupEncoder(), 0
    yield encoder.begin(header)
    try:
        while (piece := reader.chunk(number)) is not None:
            yield encoder.piece(piece)
            number += 1
    except (SnapshotGone, StoreCorrupt) as error:
        yield encoder.broken(str(error))
        raise
    yield encoder.end()


def frame(kind: int, payload: bytes) -> bytes:
    prefix = _PREFIX.pack(kind, len(payload))
    return _FRAME.pack(kind, len(payload), zlib.crc32(payload, zlib.crc32(prefix))) + payload


class BackupParser:
    """Accepts the bytes in parts of any size: `feed` yields the header, each piece, the end. Call `finish` at the end.

    Raises BackupInvalid; everything yielded before is then invalid as well. `name`: the name for error texts.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._hash = blake2b(digest_size=HASH_BYTES)
        self._buffer = bytearray()
        self._at = self._pieces = 0
        self._begun = False
        self._header: BackupHeader | None = None
        self._end: BackupEnd | None = None

    def feed(self, data: bytes) -> Iterator[BackupHeader | BackupEnd | bytes]:
        self._buffer += data
        if not self._begun:
            if len(self._buffer) < len(MAGIC) and MAGIC.startswith(self._buffer):
                return
            self._take_magic()
        while (found := self._next_frame()) is not None:
            yield self._open(*found)
        if self._end is not None and self._buffer:
            raise self._invalid("continues after its end")

    def finish(self) -> BackupEnd:
        if self._end is None:
            size = self._at + len(self._buffer)
            last = "its last record is incomplete" if self._buffer else "its end is missing"
            raise self._invalid(f"is cut off: it has {counted(size, 'byte')}, and {last}")
        return self._end

    def _take_magic(self) -> None:
        if not self._buffer.startswith(MAGIC):
            # The text omits the first bytes: the file may contain passwords.
            raise BackupInvalid(f"{self.name} is not a backup of Palisade: give a file written by 'palisade backup'")
        self._consume(len(MAGIC))
        self._begun = True

    def _next_frame(self) -> tuple[int, bytes, int] | None:
        """(kind, payload, length of the frame) if a complete frame was received."""
        if self._end is not None or len(self._buffer) < _FRAME.size:
            return None
        kind, length, crc = _FRAME.unpack_from(self._buffer)
        if length > FRAME_BYTES_MAX:
            raise self._invalid("is damaged")
        size = _FRAME.size + length
        if len(self._buffer) < size:
            return None
        payload = bytes(memoryview(self._buffer)[_FRAME.size : size])
        if zlib.crc32(payload, zlib.crc32(_PREFIX.pack(kind, length))) != crc:
            raise self._invalid("is damaged (checksum)")
        return kind, payload, size

    def _open(self, kind: int, payload: bytes, size: int) -> BackupHeader | BackupEnd | bytes:
        if (self._header is None) != (kind == HEADER):
            raise self._invalid("has its frames in the wrong order")
        if kind == HEADER:
            self._header = self._read_header(payload)
            self._consume(size)
            return self._header
        if kind == PIECE:
            self._pieces += 1
            self._consume(size)
            return payload
        if kind == END:
            self._end = self._read_end(payload)
            del self._buffer[:size]
            return self._end
        if kind == BROKEN:
            raise BackupInvalid(f"{self.name} is incomplete, the node aborted it: {self._text(payload)}; {REMEDY}")
        raise self._invalid(f"has a frame of unknown kind {kind}")

    def _read_header(self, payload: bytes) -> BackupHeader:
        content = self._unpack(payload)
        number = content.get("format") if isinstance(content, dict) else None
        if type(number) is not int:
            raise self._invalid("has an unreadable header")
        if number > FORMAT_VERSION:
            raise BackupInvalid(
                f"{self.name} has format {number}, written by version {str(content.get('created_by'))[:40]}; this "
                f"version knows up to {FORMAT_VERSION}: use that version or a newer one"
            )
        known = {field.name: content.get(field.name) for field in fields(BackupHeader)}
        texts = ("created_by", "cluster", "cluster_id", "snapshot")
        for name, value in known.items():
            kind = str if name in texts else int
            if type(value) is not kind and not (name == "size_bytes" and value is None):
                raise self._invalid(f"has a header with an unreadable field {name!r}")
        return BackupHeader(**known)

    def _read_end(self, payload: bytes) -> BackupEnd:
        if payload != msgpack.packb([self._pieces, self._at, self._hash.digest()]):
            raise self._invalid("was altered (totals or hash do not match)")
        return BackupEnd(self._pieces, self._at + _FRAME.size + len(payload), self._hash.digest())

    def _text(self, payload: bytes) -> str:
        text = str(self._unpack(payload))[:500]
        return "".join(each if each.isprintable() else "?" for each in text)

    def _unpack(self, payload: bytes) -> Any:
        try:
            return msgpack.unpackb(payload)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise self._invalid(f"has an unreadable frame ({error})") from error

    def _consume(self, size: int) -> None:
        self._hash.update(memoryview(self._buffer)[:size])
        del self._buffer[:size]
        self._at += size

    def _invalid(self, what: str) -> BackupInvalid:
        return BackupInvalid(f"{self.name} {what}, at byte {self._at}: {REMEDY}")


class BackupCheck:
    """Every check of a backup that needs no store: bytes, pieces, and whether the content matches the header."""

    def __init__(self, name: str) -> None:
        self._parser = BackupParser(name)
        self._assembly: Assembly | None = None
        self._meta = MemoryMap()
        self.header: BackupHeader | None = None
        self._number = 0

    def feed(self, data: bytes) -> None:
        """Raises BackupInvalid."""
        for found in self._parser.feed(data):
            if isinstance(found, BackupHeader):
                self.header, self._assembly = found, Assembly(found.snapshot_meta)
            elif isinstance(found, bytes) and self._assembly is not None:
                try:
                    self._look_at(self._assembly.accept(self._number, found))
                except SnapshotInvalid as error:
                    raise BackupInvalid(f"{self._parser.name}: {error}; {REMEDY}") from error
                self._number += 1

    def finish(self) -> tuple[BackupHeader, BackupEnd]:
        """Raises BackupInvalid."""
        end = self._parser.finish()
        if self.header is None or self._assembly is None:
            raise BackupInvalid(f"{self._parser.name} has no header; {REMEDY}")
        try:
            self._assembly.check_whole()
        except SnapshotInvalid as error:
            raise BackupInvalid(f"{self._parser.name} is incomplete: {error}; {REMEDY}") from error
        check_header(self.header, StoreState(self._meta), self._parser.name)
        return self.header, end

    def _look_at(self, runs: list[Run]) -> None:
        for table, flat in runs:
            if table == Table.META:
                for key, value in zip(flat[::2], flat[1::2], strict=True):
                    self._meta.put(Table.META, key, value)


def check_header(header: BackupHeader, state: StoreState, name: str) -> None:
    """Raises BackupInvalid unless the state matches the header."""
    lineage = state.lineage
    said = (header.revision, header.index, header.term, header.cluster_id, header.generation, header.keys)
    held = (state.revision, state.index, state.term, lineage.cluster_id, lineage.generation, state.keys)
    if said != held:
        raise BackupInvalid(
            f"{name} announces {said} (revision, index, term, lineage, keys) but contains {held}: {REMEDY}"
        )
