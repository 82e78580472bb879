"""Questions to a source and its answers as msgpack values. Pure; both sides of the network share it.

    state          [chain_at]                                   -> [cluster id, generation, LM, MM, keys, chain or nil]
    changes        [first, last]                                -> [[number, [body, ...], chain], ...]
    pin            [node, revision, life_ms]                    -> remaining ms
    unpin          [node]                                       -> nil
    sums           [revision]                                   -> [revision, chain, 4,096 x 16 bytes]
    rows           [revision, buckets, newer than, start, end]  -> [payload, checksum, until or nil]
    fingerprints   [revision, buckets, start]                   -> [payload, checksum, until or nil]

What arrives is checked against its shape here, and against digests and checksums by who asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgpack

from recovery.ports import BucketSums, Chunk, SourceState
from vault.change import Revision
from vault.digest import pack_sums, unpack_sums

CONTENT_TYPE = "application/msgpack"


class BadFeed(ValueError):
    """What arrived is not in the shape of this page."""


def pack(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value)
    return packed


def unpack(content: bytes) -> Any:
    """Raises BadFeed."""
    try:
        return msgpack.unpackb(content)
    except (ValueError, msgpack.UnpackException) as error:
        raise BadFeed(f"not msgpack: {error}") from None


def arguments(content: bytes, *kinds: Any) -> list[Any]:
    """The list of a question. Raises BadFeed unless it has these types, in this order."""
    found = unpack(content)
    if not isinstance(found, list) or len(found) != len(kinds):
        raise BadFeed(f"a list of {len(kinds)} values is expected")
    for value, kind in zip(found, kinds, strict=True):
        if not isinstance(value, kind) or isinstance(value, bool) or (isinstance(value, int) and value < 0):
            raise BadFeed(f"{str(value)[:64]!r} is not what is expected here")
    return found


@contextmanager
def shape() -> Iterator[None]:
    """A set of buckets of another size is what was sent, not a fault of this node."""
    try:
        yield
    except ValueError as error:
        raise BadFeed(str(error)) from None


def from_state(state: SourceState) -> list[Any]:
    return [state.cluster_id, state.generation, state.latest, state.minimal, state.keys, state.chain_at]


def to_state(value: Any) -> SourceState:
    cluster_id, generation, latest, minimal, keys, chain_at = value
    return SourceState(str(cluster_id), int(generation), int(latest), int(minimal), int(keys), chain_at)


def from_changes(revisions: Sequence[Revision]) -> list[Any]:
    return [[revision.number, list(revision.bodies), revision.chain] for revision in revisions]


def to_changes(value: Any) -> list[Revision]:
    return [Revision(number, bodies, chain) for number, bodies, chain in value]


def from_sums(sums: BucketSums) -> list[Any]:
    return [sums.revision, sums.chain, pack_sums(sums.sums)]


def to_sums(value: Any) -> BucketSums:
    revision, chain, packed = value
    return BucketSums(revision, chain, unpack_sums(packed))


def from_chunk(chunk: Chunk) -> list[Any]:
    return [chunk.payload, chunk.checksum, chunk.until]


def to_chunk(value: Any) -> Chunk:
    payload, checksum, until = value
    return Chunk(payload, checksum, until)
