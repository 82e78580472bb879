"""Two replicas compare in O(buckets), and what differs is named (M7).

leaf(event)  = H(revision, sub, event)                                     H is BLAKE2b-128
chain(r)     = H(chain(r - 1), times and counts of r, leaves of r in order)
bucket(b)    = sum of the leaves of the live keys of b, modulo 2^128       b = crc32(key) mod 4,096

A leaf covers key, value and mod revision, so equal buckets mean equal live content, and a put or delete changes
one sum by one subtraction and one addition. Physical removal by compaction touches neither chain nor sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct
from zlib import crc32

from metastore.lineage import LINEAGE_BOUNDS
from metastore.ordered_map import OrderedMap, Table
from metastore.record import DIGEST_BYTES, PIN_END, PIN_PREFIX, TRAILER

BUCKETS = 4096
SUM_MASK = (1 << 128) - 1
BUCKET_PREFIX = b"bucket/"
BUCKET_END = b"bucket0"
BUCKET_NUMBER = Struct(">H")
CONTROL_ENTRY = Struct(">BII")
TIMES = Struct(">QQQI")
"""Wall and lease clock, garbage, number of events: the trailer of a revision without its chain."""


def bucket_of(key: bytes) -> int:
    return crc32(key) & (BUCKETS - 1)


def bucket_key(bucket: int) -> bytes:
    return BUCKET_PREFIX + BUCKET_NUMBER.pack(bucket)


BUCKET_KEYS = [bucket_key(bucket) for bucket in range(BUCKETS)]


def next_chain(chain: bytes, times: bytes, leaves: bytes) -> bytes:
    """`times` as TIMES packs them; `leaves` one after the other."""
    return blake2b(chain + times + leaves, digest_size=DIGEST_BYTES).digest()


def trailer_times(trailer: bytes) -> bytes:
    return trailer[DIGEST_BYTES : TRAILER.size]


@dataclass(frozen=True, slots=True)
class Digest:
    """What a replica says of itself at `revision`. `buckets`: 4,096 sums of 16 bytes, big-endian, in order."""

    revision: int
    chain: bytes
    buckets: bytes

    def bucket(self, number: int) -> bytes:
        return self.buckets[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES]

    def root(self) -> bytes:
        """16 bytes for all of it."""
        head = self.revision.to_bytes(8, "big") + self.chain
        return blake2b(head + self.buckets, digest_size=DIGEST_BYTES).digest()


class BucketSums:
    """The sums in memory, and which of them wait to be written."""

    __slots__ = ("dirty", "sums")

    def __init__(self, tables: OrderedMap) -> None:
        self.sums: list[int] = [0] * BUCKETS
        self.dirty: set[int] = set()
        self.load(tables)

    def load(self, tables: OrderedMap) -> None:
        self.sums[:] = [0] * BUCKETS
        self.dirty.clear()
        for key, value in tables.scan(Table.META, BUCKET_PREFIX, BUCKET_END):
            (number,) = BUCKET_NUMBER.unpack(key[len(BUCKET_PREFIX) :])
            self.sums[number] = int.from_bytes(value, "big")

    def replace(self, key: bytes, old_leaf: bytes, new_leaf: bytes) -> None:
        """An empty leaf (sixteen zero bytes) stands for no version."""
        number = crc32(key) & (BUCKETS - 1)
        change = int.from_bytes(new_leaf, "big") - int.from_bytes(old_leaf, "big")
        self.sums[number] = (self.sums[number] + change) & SUM_MASK
        self.dirty.add(number)

    def save(self, tables: OrderedMap) -> None:
        put, meta, sums, keys = tables.put, Table.META, self.sums, BUCKET_KEYS
        for number in self.dirty:
            put(meta, keys[number], sums[number].to_bytes(DIGEST_BYTES, "big"))
        self.dirty.clear()

    def packed(self) -> bytes:
        return b"".join([total.to_bytes(DIGEST_BYTES, "big") for total in self.sums])


def differing_buckets(one: Digest, other: Digest) -> tuple[int, ...]:
    """The buckets whose live content differs. Both digests must be of the same revision."""
    if one.revision != other.revision:
        raise ValueError(f"digests of revisions {one.revision} and {other.revision} can't be compared")
    return tuple(number for number in range(BUCKETS) if one.bucket(number) != other.bucket(number))


ChainAt = Callable[[int], bytes | None]


def first_divergence(one: ChainAt, other: ChainAt, minimal_revision: int, revision: int) -> int | None:
    """The first revision at which two chains differ, in O(log n) look-ups; None where they agree.

    Both replicas must retain [minimal_revision, revision]. If the answer is `minimal_revision`, the histories
    may have parted before it.
    """
    if one(revision) == other(revision):
        return None
    low, high = minimal_revision, revision
    while low < high:
        middle = (low + high) // 2
        if one(middle) == other(middle):
            low = middle + 1
        else:
            high = middle
    return low


def control_digest(tables: OrderedMap) -> bytes:
    """16 bytes over what no bucket covers: leases and their keys, remembered results, pins, lineage. Reads all.

    Equal on all replicas at one applied index.
    """
    content = blake2b(digest_size=DIGEST_BYTES)
    whole = (Table.LEASE, Table.LEASE_KEY, Table.CLIENT)
    entries = [(table, tables.scan(table, b"", None)) for table in whole]
    entries += [(Table.META, tables.scan(Table.META, *bounds)) for bounds in (LINEAGE_BOUNDS, (PIN_PREFIX, PIN_END))]
    for table, found in entries:
        for key, value in found:
            content.update(CONTROL_ENTRY.pack(table, len(key), len(value)) + key + value)
    return content.digest()
