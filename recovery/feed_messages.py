"""Requests to a source and its answers as msgpack values. Pure; shared by both ends of the connection.

    state          [chain_at]                                   -> [cluster id, generation, LM, MM, keys, chain or nil]
    changes        [first, last, history]                       -> [[number, [body, ...], chain], ...]
    pin            [node, revision, life_ms]                    -> remaining ms
    unpin          [node]                                       -> nil
    sums           [revision, history]                          -> [revision, chain, 4,096 x 16 bytes]
    rows           [revision, buckets, newer than, start, end, history]
    spans          [revision, start, history]
    fingerprints   [revision, buckets, start, end, history]     -> [payload, checksum, until or nil], as of both above

A history is [cluster id, generation], as last received by the requester; nil: none yet. A revision has no meaning in
another history, so there it is refused like a compacted one, and the requester reads the state again. The shape of
messages is checked here, on both sides; the requester checks digests and checksums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgpack

from palisade.base.counted import counted
from palisade.base.digest import BITMAP_BYTES, BUCKETS, DIGEST_BYTES, pack_sums, unpack_sums
from palisade.recovery.ports import Chunk, ClusterSums, SourceState
from palisade.vault.change import Revision

History = tuple[str, int]
CONTENT_TYPE = "application/msgpack"
NUMBER_MAX = (1 << 63) - 1
NAME_BYTES_MAX = 63
KEY_BYTES_MAX = 8 * 1024
"""More than any configurable limit of keys."""
SHOWN = 64


class BadFeed(ValueError):
    """The received value does not have the shape defined here."""


def pack(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value)
    return packed


def unpack(content: bytes) -> Any:
    """Raises BadFeed."""
    try:
        return msgpack.unpackb(content)
    except (ValueError, msgpack.UnpackException) as error:
        raise BadFeed(f"not msgpack: {error}") from None


Read = Callable[[Any], Any]


def arguments(content: bytes, *reads: Read) -> list[Any]:
    """The list of a request. Raises BadFeed."""
    return fields(unpack(content), *reads)


def fields(value: Any, *reads: Read) -> list[Any]:
    """A list with one value per reader, each as its reader returns it. Raises BadFeed."""
    if type(value) is not list or len(value) != len(reads):
        raise BadFeed(f"a list of {counted(len(reads), 'value')} is expected, not {_shown(value)}")
    return [read(each) for read, each in zip(reads, value, strict=True)]


def number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= NUMBER_MAX:
        raise BadFeed(f"a number from 0 to {NUMBER_MAX} is expected, not {_shown(value)}")
    return value


def text(value: Any) -> str:
    if type(value) is not str:
        raise BadFeed(f"a text is expected, not {_shown(value)}")
    return value


def name(value: Any) -> str:
    """The name of a node."""
    if not 1 <= len(text(value).encode()) <= NAME_BYTES_MAX:
        raise BadFeed(f"the name of a node has 1 to {NAME_BYTES_MAX} bytes, not {_shown(value)}")
    return text(value)


def content(value: Any) -> bytes:
    if type(value) is not bytes:
        raise BadFeed(f"bytes are expected, not {_shown(value)}")
    return value


def key(value: Any) -> bytes:
    if len(content(value)) > KEY_BYTES_MAX:
        raise BadFeed(f"a key of {len(value)} bytes exceeds the limit of {KEY_BYTES_MAX}")
    return content(value)


def bitmap(value: Any) -> bytes:
    """A set of buckets."""
    if len(content(value)) != BITMAP_BYTES:
        raise BadFeed(f"a set of buckets has {BITMAP_BYTES} bytes, not {len(value)}")
    return content(value)


def history(value: Any) -> History:
    cluster_id, generation = fields(value, text, number)
    return cluster_id, generation


def or_none(read: Read) -> Read:
    return lambda value: None if value is None else read(value)


def _shown(value: Any) -> str:
    return repr(value)[:SHOWN] if not isinstance(value, list | dict) else f"a {type(value).__name__} of {len(value)}"


def from_state(state: SourceState) -> list[Any]:
    return [state.cluster_id, state.generation, state.latest, state.minimal, state.keys, state.chain_at]


def to_state(value: Any) -> SourceState:
    return SourceState(*fields(value, text, number, number, number, number, or_none(content)))


def from_changes(revisions: Sequence[Revision]) -> list[Any]:
    return [[revision.number, list(revision.bodies), revision.chain] for revision in revisions]


def to_changes(value: Any) -> list[Revision]:
    """On the path of 100,000 revisions per second: bodies are decoded where they are applied, which detects errors."""
    if type(value) is not list:
        raise BadFeed(f"a list of revisions is expected, not {_shown(value)}")
    return [Revision(*fields(each, number, _bodies, content)) for each in value]


def _bodies(value: Any) -> list[bytes]:
    if type(value) is not list or {*map(type, value)} - {bytes}:
        raise BadFeed(f"the events of a revision are expected, not {_shown(value)}")
    return value


def from_sums(sums: ClusterSums) -> list[Any]:
    return [sums.revision, sums.chain, pack_sums(sums.sums)]


def to_sums(value: Any) -> ClusterSums:
    revision, chain, packed = fields(value, number, content, content)
    if len(chain) != DIGEST_BYTES or len(packed) != BUCKETS * DIGEST_BYTES:
        raise BadFeed(
            f"digests of {DIGEST_BYTES} bytes are expected, one and {BUCKETS}: not {len(chain) + len(packed)}"
        )
    return ClusterSums(revision, chain, unpack_sums(packed))


def from_chunk(chunk: Chunk) -> list[Any]:
    return [chunk.payload, chunk.checksum, chunk.until]


def to_chunk(value: Any) -> Chunk:
    return Chunk(*fields(value, content, content, or_none(content)))


def to_refusal(value: Any) -> tuple[str, str, int]:
    """Kind, text, MM."""
    kind, said, minimal = fields(value, text, text, number)
    return kind, said, minimal
