"""The digests of a replica: storage of its sums, comparison of two replicas, location of a difference (M7).

The formula is in `palisade/base/digest.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from itertools import compress
from operator import is_not
from struct import Struct

from palisade.base.digest import BUCKETS, DIGEST_BYTES, SUM_MASK, bucket_of, unpack_sums
from palisade.metastore.lineage import LINEAGE_BOUNDS
from palisade.metastore.ordered_map import OrderedMap, Table
from palisade.metastore.record import PIN_END, PIN_PREFIX

SUMS_KEY = b"buckets"
CONTROL_ENTRY = Struct(">BII")


@dataclass(frozen=True, slots=True)
class StoreDigest:
    """The digests of a replica at `revision`. `buckets`: 4,096 sums of 16 bytes, big-endian, in order."""

    revision: int
    chain: bytes
    buckets: bytes

    def bucket(self, number: int) -> bytes:
        return self.buckets[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES]

    def root(self) -> bytes:
        """16 bytes over everything."""
        head = self.revision.to_bytes(8, "big") + self.chain
        return blake2b(head + self.buckets, digest_size=DIGEST_BYTES).digest()


class BucketSums:
    """The sums in memory, possibly beyond their modulus; `save` writes them as one entry of META.

    `packed` packs only what has changed since its last call: an unchanged number is the same object."""

    __slots__ = ("_known", "_packed", "_saved", "sums")

    def __init__(self, tables: OrderedMap) -> None:
        self.sums: list[int] = []
        self._known: list[int] = []
        self._packed = bytearray()
        self._saved = b""
        self.load(tables)

    def load(self, tables: OrderedMap) -> None:
        self._saved = _saved_in(tables)
        self.sums[:] = unpack_sums(self._saved)
        self._known = list(self.sums)
        self._packed = bytearray(self._saved)

    def replace(self, key: bytes, old_leaf: int, new_leaf: int) -> None:
        """0 means no version."""
        self.sums[bucket_of(key)] += new_leaf - old_leaf

    def save(self, tables: OrderedMap) -> None:
        packed = self.packed()
        if packed != self._saved:
            tables.put(Table.META, SUMS_KEY, packed)
            self._saved = packed

    def packed(self) -> bytes:
        """4,096 sums of 16 bytes, big-endian, in order."""
        sums, known, packed = self.sums, self._known, self._packed
        for number in list(compress(range(BUCKETS), map(is_not, sums, known))):
            total = sums[number] = known[number] = sums[number] & SUM_MASK
            packed[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES] = total.to_bytes(DIGEST_BYTES, "big")
        return bytes(packed)

    def numbers(self) -> list[int]:
        """The sums of `packed`, each reduced to its modulus."""
        self.packed()
        return self._known.copy()


def read_sums(tables: OrderedMap) -> list[int]:
    """The sums as last saved."""
    return unpack_sums(_saved_in(tables))


def _saved_in(tables: OrderedMap) -> bytes:
    return tables.get(Table.META, SUMS_KEY) or bytes(BUCKETS * DIGEST_BYTES)


def differing_buckets(one: StoreDigest, other: StoreDigest) -> tuple[int, ...]:
    """The buckets whose live content differs. Both digests must be of the same revision."""
    if one.revision != other.revision:
        raise ValueError(f"digests of revisions {one.revision} and {other.revision} can't be compared")
    return tuple(number for number in range(BUCKETS) if one.bucket(number) != other.bucket(number))


ChainAt = Callable[[int], bytes | None]


def first_divergence(one: ChainAt, other: ChainAt, minimal_revision: int, revision: int) -> int | None:
    """The first revision at which two chains differ, in O(log n) look-ups; None if they agree.

    Both replicas must retain [minimal_revision, revision]. If the answer is `minimal_revision`, the histories
    may differ from an earlier revision on.
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
    """16 bytes over the state outside the buckets: leases and their keys, stored results, pins, lineage. Reads all.

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
