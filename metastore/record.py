"""The layouts of the tables, all in one place; integers are big-endian.

A *row* is one version of a key, or the tombstone that a delete leaves. KEY has the latest row of each key, so reading
one key is one look-up. Its *pointer* is revision and sub, the number of the event in its revision.

    link      sub; the jump: pointer of an older row of this key; how many rows ago that was   (see `history.py`)
    content   mod revision, create revision, version (0: a tombstone), lease, sizes of key and value; key, value

A *leaf* is the hash of the content alone (`row[LINK_BYTES:]`), which vaults have as well as replicas.

REVISION holds the events in blocks (`history.py`). An event is the written row followed by the row that it replaced.
Thus every version that a retained revision can read is in a block of a later revision, or in KEY.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from palisade.base.digest import DIGEST_BYTES, leaf_of
from palisade.metastore.results import KeyValue

ROW = Struct(">IQIBQQQQHI")
LINK_BYTES = 17
KEY_BYTES_AT = ROW.size - 6
POINTER = Struct(">QI")
REVISION = Struct(">Q")
JUMP_ROWS = 64
"""The interval of milestones among the rows of a key; the jumps of later rows lead to them."""

PIN_PREFIX, PIN_END = b"pin/", b"pin0"
"""The pins in META: their ids follow the prefix."""
VERSION_OVERHEAD_BYTES = 200
"""The cost of a version besides its key (twice) and its value."""


def key_hash(key: bytes) -> bytes:
    """16 bytes that stand for a key or an id: cryptographic, because equal hashes are taken for equal keys."""
    return blake2b(key, digest_size=DIGEST_BYTES).digest()


def cost_of(key: bytes, value: bytes) -> int:
    """The logical size of one version, in bytes: equal on every replica, independent of its files (M8)."""
    return 2 * len(key) + len(value) + VERSION_OVERHEAD_BYTES


class StoredRow(NamedTuple):
    """One version of a key; a tombstone has version, create revision and lease 0, and no value."""

    sub: int
    jump: int
    jump_sub: int
    since: int
    mod_revision: int
    create_revision: int
    version: int
    lease: int
    key: bytes
    value: bytes

    @property
    def cost(self) -> int:
        """The logical size. A tombstone has none: a full store must always accept deletes."""
        return cost_of(self.key, self.value) if self.version else 0

    def as_key_value(self) -> KeyValue:
        return KeyValue(self.key, self.value, self.create_revision, self.mod_revision, self.version, self.lease)


def pack_row(row: StoredRow) -> bytes:
    return ROW.pack(*row[:8], len(row.key), len(row.value)) + row.key + row.value


def unpack_row(packed: bytes) -> StoredRow:
    *numbers, key_bytes, value_bytes = ROW.unpack_from(packed)
    start = ROW.size + key_bytes
    return StoredRow._make((*numbers, packed[ROW.size : start], packed[start : start + value_bytes]))


def key_of(packed: bytes) -> bytes:
    return packed[ROW.size : ROW.size + int.from_bytes(packed[KEY_BYTES_AT : KEY_BYTES_AT + 2], "big")]


def row_size(packed: bytes, start: int = 0) -> int:
    """The length of the row that begins at `start`, without trailing bytes."""
    key_bytes = int.from_bytes(packed[start + KEY_BYTES_AT : start + KEY_BYTES_AT + 2], "big")
    value_bytes = int.from_bytes(packed[start + KEY_BYTES_AT + 2 : start + ROW.size], "big")
    return ROW.size + key_bytes + value_bytes


def content_leaf(version: KeyValue) -> int:
    """The leaf of a version without its row, such as one of the change feed."""
    numbers = (version.mod_revision, version.create_revision, version.version, version.lease)
    head = ROW.pack(0, 0, 0, 0, *numbers, len(version.key), len(version.value))
    return leaf_of(head[LINK_BYTES:] + version.key + version.value)
