"""The bytes of the tables: every layout in one place, all integers big-endian.

REVISION  pointer -> header, key, value; and, after the first event of a revision (sub 0), a trailer for the whole
          revision: chain digest, wall and lease clock, garbage so far, number of events.
KEY       key -> meta of its latest version: pointer, create revision, version (0: a tombstone), lease, cost, leaf.
          The value is not here: it is read from REVISION by the pointer, which is the first 12 bytes of the meta.
HISTORY   blake2b-128(key), mod revision -> sub, end, leaf of a superseded version. `end` is the revision that
          superseded it: a read at r wants the newest entry at or below r, and it exists at r only if r < end.

A *pointer* is revision and sub: the number of the event in its revision. A *leaf* is H(pointer, header, key,
value), the digest of one event; both the chain and the buckets are made of leaves (`digest.py`).
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from metastore.results import KeyValue

PUT = 0
DELETE = 1

POINTER = Struct(">QI")
HEADER = Struct(">BHIQQQQI")
TRAILER = Struct(">16sQQQI")
META = Struct(">QIQQQI16s")
HISTORY_VALUE = Struct(">IQ16s")
REVISION = Struct(">Q")
SUB = Struct(">I")
FIRST_SUB, ONE_EVENT = SUB.pack(0), SUB.pack(1)
"""How the pointer of a revision's first event ends, and the trailer of a revision with one event."""

POINTER_BYTES = POINTER.size
HEADER_BYTES = HEADER.size
DIGEST_BYTES = 16
NO_DIGEST = bytes(DIGEST_BYTES)
PIN_PREFIX, PIN_END = b"pin/", b"pin0"
"""The pins in META: their ids follow."""
VERSION_OVERHEAD_BYTES = 200
"""What a version costs beside its key (twice) and its value: header, trailer, meta, history."""


def cost_of(key: bytes, value: bytes) -> int:
    """The logical size of one version, in bytes: the same on every replica, whatever its files look like (M8)."""
    return 2 * len(key) + len(value) + VERSION_OVERHEAD_BYTES


def leaf_of(pointer: bytes, body: bytes) -> bytes:
    """`body`: header, key and value."""
    return blake2b(pointer + body, digest_size=DIGEST_BYTES).digest()


def key_hash(key: bytes) -> bytes:
    return blake2b(key, digest_size=DIGEST_BYTES).digest()


class Meta(NamedTuple):
    """The latest version of a key. A tombstone has version 0, create revision 0, lease 0 and an empty leaf."""

    mod_revision: int
    sub: int
    create_revision: int
    version: int
    lease: int
    cost: int
    leaf: bytes


class Trailer(NamedTuple):
    """Of a whole revision. `garbage` is the cost of all versions superseded up to and with this revision."""

    chain: bytes
    wall_ms: int
    clock_ms: int
    garbage: int
    events: int


class Record(NamedTuple):
    """One event, as REVISION holds it. `previous` is the pointer of the live version that it superseded, or None."""

    kind: int
    key: bytes
    value: bytes
    create_revision: int
    version: int
    lease: int
    previous: bytes | None


def unpack_meta(packed: bytes) -> Meta:
    return Meta._make(META.unpack(packed))


def body_size(record: bytes) -> int:
    return HEADER_BYTES + int.from_bytes(record[1:3], "big") + int.from_bytes(record[3:7], "big")


def unpack_trailer(record: bytes) -> Trailer:
    """Of a record with sub 0."""
    return Trailer._make(TRAILER.unpack_from(record, body_size(record)))


def is_only_event(pointer: bytes, record: bytes) -> bool:
    """Whether a record is the only one of its revision: its trailer, with which it ends, says so."""
    return pointer.endswith(FIRST_SUB) and record.endswith(ONE_EVENT)


def unpack_record(record: bytes) -> Record:
    kind, key_bytes, value_bytes, create, version, lease, previous, sub = HEADER.unpack_from(record)
    start = HEADER_BYTES + key_bytes
    return Record(
        kind,
        record[HEADER_BYTES:start],
        record[start : start + value_bytes],
        create,
        version,
        lease,
        POINTER.pack(previous, sub) if previous else None,
    )


def value_of(record: bytes) -> bytes:
    start = HEADER_BYTES + int.from_bytes(record[1:3], "big")
    return record[start : start + int.from_bytes(record[3:7], "big")]


def key_of(record: bytes) -> bytes:
    return record[HEADER_BYTES : HEADER_BYTES + int.from_bytes(record[1:3], "big")]


def key_value_of(record: bytes, mod_revision: int) -> KeyValue:
    """The version that the record of a put holds."""
    _, key_bytes, value_bytes, create, version, lease, _, _ = HEADER.unpack_from(record)
    start = HEADER_BYTES + key_bytes
    value = record[start : start + value_bytes]
    return KeyValue(record[HEADER_BYTES:start], value, create, mod_revision, version, lease)
