"""How the journal writes its records: a checksum in front of each, over its key and its content.

    entry   key = index (8 bytes, big endian)    value = crc32 (4) + term (8) + command
    meta    key = name                           value = crc32 (4) + content

Pure. The checksum covers the key, so that a record which turns up in another's place is found out as well.
"""

from __future__ import annotations

import struct
import zlib

import msgpack

from palisade.raftgroup.errors import JournalCorrupt
from palisade.raftgroup.ports import Entry

FORMAT_VERSION = 1
FORMAT_NAME = "palisade-journal"
REMEDY = (
    "This node's copy of the log can't be trusted any more: remove its data directory and start it with --join, "
    "so that it comes back as a new member and gets everything from the others. If no majority of healthy "
    "nodes is left, restore a backup"
)

_HEAD = struct.Struct(">IQ")
_INDEX = struct.Struct(">Q")
_CRC = struct.Struct(">I")
_KEY_AND_TERM = struct.Struct(">QQ")


def entry_key(index: int) -> bytes:
    return _INDEX.pack(index)


def index_of(key: bytes) -> int:
    if len(key) != _INDEX.size:
        raise JournalCorrupt(f"a key of the log has {len(key)} bytes instead of {_INDEX.size}. {REMEDY}")
    return int(_INDEX.unpack(key)[0])


def entry_value(entry: Entry) -> bytes:
    crc = zlib.crc32(entry.command, zlib.crc32(_KEY_AND_TERM.pack(entry.index, entry.term)))
    return _HEAD.pack(crc, entry.term) + entry.command


def entry_from(index: int, value: bytes) -> Entry:
    """Raises JournalCorrupt unless the value is what was written for this index."""
    if len(value) >= _HEAD.size:
        crc, term = _HEAD.unpack_from(value)
        command = value[_HEAD.size :]
        if zlib.crc32(command, zlib.crc32(_KEY_AND_TERM.pack(index, term))) == crc:
            return Entry(command, index, term)
    raise JournalCorrupt(f"entry {index} of the log is not what was written (checksum). {REMEDY}")


def meta_value(name: bytes, content: bytes) -> bytes:
    return _CRC.pack(zlib.crc32(content, zlib.crc32(name))) + content


def meta_from(name: bytes, value: bytes) -> bytes:
    content = value[_CRC.size :]
    if len(value) >= _CRC.size and _CRC.unpack_from(value)[0] == zlib.crc32(content, zlib.crc32(name)):
        return content
    raise JournalCorrupt(f"record {name!r} of the journal is not what was written (checksum). {REMEDY}")


def pack(content: object) -> bytes:
    packed: bytes = msgpack.packb(content)
    return packed


def unpack(content: bytes) -> list[object]:
    unpacked: list[object] = msgpack.unpackb(content)
    return unpacked
