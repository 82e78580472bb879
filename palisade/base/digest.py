"""The digests by which replicas of the metadata store, and vaults, are compared in O(buckets) (M7). Pure.

leaf(version) = H(body)                                                   H is XXH3-128
chain(r)      = chain(r - 1) * odd factor + leaf, for the events of r in order, modulo 2^128
bucket(b)     = sum of the leaves of the live keys of b, modulo 2^128       b = crc32(key) mod 4,096
content       = sum of all buckets, modulo 2^128

The body of a version is (mod revision, create revision, version, lease, key, value) in the layout of
`metastore/record.py` and `vault/change.py`; tests/contracts/test_vault_digests.py checks that both produce the same
bytes. A leaf covers key, value and mod revision, so equal buckets mean equal live content, and a put or delete changes
one sum by one subtraction and one addition. Compaction changes neither chain nor sums. Times are not included.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from zlib import crc32

from xxhash import xxh3_64_digest, xxh3_128_intdigest

DIGEST_BYTES = 16
NO_DIGEST = bytes(DIGEST_BYTES)
BUCKETS = 4096
SUM_MASK = (1 << 128) - 1
CHAIN_FACTOR = 0x9E3779B97F4A7C15F39CC0605CEDC835
FINGERPRINT_BYTES = 4
BITMAP_BYTES = BUCKETS // 8
_PACKED = Struct(f"{DIGEST_BYTES}s")
_BITS = [bytes(byte >> bit & 1 for bit in range(8)) for byte in range(256)]
"""The bits of each byte, the lowest first."""

Sums = list[int]
"""One number per bucket."""


def bucket_of(key: bytes) -> int:
    return crc32(key) & (BUCKETS - 1)


leaf_of = xxh3_128_intdigest
"""XXH3-128 of a body. It detects faults, not forgery."""


def digest_bytes(number: int) -> bytes:
    return number.to_bytes(DIGEST_BYTES, "big")


def next_chain(chain: int, leaf: int) -> int:
    """The chain digest after one more event. The factor is odd, so a difference never vanishes by multiplication."""
    return (chain * CHAIN_FACTOR + leaf) & SUM_MASK


def fingerprint_of(key: bytes) -> bytes:
    """Whether a key is present, with high probability: after a collision the sum of the bucket does not match."""
    return xxh3_64_digest(key)[:FINGERPRINT_BYTES]


def pack_sums(sums: Sums) -> bytes:
    """16 bytes per bucket, big-endian, in order: the `buckets` of a `metastore.digest.StoreDigest`."""
    return b"".join([total.to_bytes(DIGEST_BYTES, "big") for total in sums])


def unpack_sums(packed: bytes) -> Sums:
    if len(packed) != BUCKETS * DIGEST_BYTES:
        raise ValueError(f"{BUCKETS} bucket digests have {BUCKETS * DIGEST_BYTES} bytes, not {len(packed)}")
    return numbers_of(packed)


def numbers_of(packed: bytes) -> list[int]:
    """Decodes consecutive numbers that `digest_bytes` has encoded. Raises struct.error if the length is not a multiple
    of `DIGEST_BYTES`."""
    return [int.from_bytes(each, "big") for (each,) in _PACKED.iter_unpack(packed)]


def replace_leaf(sums: Sums, key: bytes, old: int, new: int) -> int:
    """Replace a leaf in `sums`; 0 means no version. Returns the bucket whose sum changed."""
    number = crc32(key) & (BUCKETS - 1)
    sums[number] = (sums[number] + new - old) & SUM_MASK
    return number


def content_of(sums: Sums) -> int:
    return sum(sums) & SUM_MASK


def content_after(content: int | None, before: Sums, after: Sums, buckets: Iterable[int]) -> int:
    """`buckets`: those whose sums differ. Returns None if `content` is None (unknown)."""
    if content is None:
        return content_of(after)
    return (content + sum(after[number] - before[number] for number in buckets)) & SUM_MASK


def differing(one: Sums, other: Sums) -> tuple[int, ...]:
    """The buckets whose live content differs. Meaningful only if both are of the same revision."""
    return tuple(number for number in range(BUCKETS) if one[number] != other[number])


def bitmap_of(buckets: tuple[int, ...]) -> bytes:
    """512 bytes, one bit per bucket."""
    bits = bytearray(BITMAP_BYTES)
    for number in buckets:
        bits[number >> 3] |= 1 << (number & 7)
    return bytes(bits)


def members_of(bitmap: bytes) -> bytes:
    """4,096 bytes, 1 for each bucket in the bitmap, for fast look-up. Raises ValueError."""
    if len(bitmap) != BITMAP_BYTES:
        raise ValueError(f"a set of buckets has {BITMAP_BYTES} bytes, not {len(bitmap)}")
    return b"".join([_BITS[byte] for byte in bitmap])
