"""The encoding of rows in chunks, with a checksum. Pure.

A row is the body of one live key (`vault.change`), whose header contains its length: so rows are simply joined. The
checksum is of the whole payload.
"""

from __future__ import annotations

from collections.abc import Sequence

from xxhash import xxh3_128_digest

from palisade.base.digest import FINGERPRINT_BYTES
from palisade.recovery.errors import ChunkDamaged
from palisade.recovery.ports import Chunk
from palisade.vault import span_sums as spans
from palisade.vault.change import HEADER, HEADER_BYTES
from palisade.vault.span_sums import Span


def checksum_of(payload: bytes) -> bytes:
    """A checksum that detects faults, not forgery."""
    return xxh3_128_digest(payload)


def chunk_of(parts: Sequence[bytes], until: bytes | None) -> Chunk:
    payload = b"".join(parts)
    return Chunk(payload, checksum_of(payload), until)


def is_whole(chunk: Chunk) -> bool:
    return checksum_of(chunk.payload) == chunk.checksum


def unpack_rows(payload: bytes) -> list[bytes]:
    """Raises ChunkDamaged for a malformed sequence of rows."""
    rows, at = [], 0
    while at < len(payload):
        if at + HEADER_BYTES > len(payload):
            raise _half("rows")
        *_, key_bytes, value_bytes = HEADER.unpack_from(payload, at)
        start, at = at, at + HEADER_BYTES + key_bytes + value_bytes
        if at > len(payload):
            raise _half("rows")
        rows.append(payload[start:at])
    return rows


def unpack_fingerprints(payload: bytes) -> frozenset[bytes]:
    """Raises ChunkDamaged for an incomplete fingerprint at the end."""
    if len(payload) % FINGERPRINT_BYTES:
        raise _half("fingerprints")
    return frozenset([payload[at : at + FINGERPRINT_BYTES] for at in range(0, len(payload), FINGERPRINT_BYTES)])


def unpack_spans(payload: bytes) -> list[Span]:
    """Raises ChunkDamaged for a malformed sequence of spans."""
    try:
        return spans.unpack_spans(payload)
    except ValueError:
        raise _half("spans") from None


def _half(what: str) -> ChunkDamaged:
    """The checksum was correct, so the sender created it this way."""
    return ChunkDamaged(
        f"the {what} of a chunk are incomplete: the member that sent it is faulty or runs another release. Start the "
        "node again with another member in reach; what was received is kept"
    )
