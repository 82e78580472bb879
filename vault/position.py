"""How far a vault is, whose it is, and whether a snapshot is in the works: the small records of META. Pure.

*Coverage* says as of which revision each stretch of keys is known while a snapshot is applied in chunks: keys before
`until` of the first segment as of its revision, and so on; the last one has no end. What changed after a segment's
revision has still to come. So chunks that are there stay useful, even if the next try is for a later revision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgpack

from palisade.base.digest import DIGEST_BYTES, NO_DIGEST

SEGMENTS_MAX = 16


@dataclass(frozen=True, slots=True)
class VaultLineage:
    """Whose vault it is. `generation` grows with every break in the history of the cluster (restore, forced start)."""

    cluster_id: str
    generation: int
    node_id: str


@dataclass(frozen=True, slots=True)
class VaultPosition:
    """`revision` is LV: all up to it is in the vault. 0: nothing was ever applied. `keys`: how many live ones.

    `content`: the digest of the entries that this position describes (`palisade/base/digest.py`). None: written in
    format 2, or not known yet.
    """

    revision: int = 0
    chain: bytes = NO_DIGEST
    keys: int = 0
    content: int | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """Keys before `until` (None: all that follow) are known as of `revision`, but for those deleted since LV."""

    until: bytes | None
    revision: int


@dataclass(frozen=True, slots=True)
class Recovering:
    """The mark of a snapshot in the works: the content is between LV and `target`, and is not to be read."""

    target: int
    coverage: tuple[Segment, ...]

    @property
    def highest(self) -> int:
        """The latest revision of which the vault may hold a part."""
        return max(segment.revision for segment in self.coverage)

    def towards(self, target: int) -> Recovering:
        return Recovering(target, self.coverage)

    def next_stretch(self) -> tuple[bytes, bytes | None, int] | None:
        """(first key, end, known as of) of the first stretch that is not known as of the target; None: all are."""
        start = b""
        for segment in self.coverage:
            if segment.revision < self.target:
                return start, segment.until, segment.revision
            if segment.until is None:
                return None
            start = segment.until
        return None

    def covered(self, start: bytes, until: bytes | None) -> Recovering:
        """The stretch from `start`, as `next_stretch` gave it, is known as of the target up to `until`."""
        before, rest = [], []
        for segment in self.coverage:
            ends_before = segment.until is not None and segment.until <= start
            begins_behind = until is not None and (segment.until is None or segment.until > until)
            if ends_before:
                before.append(segment)
            elif begins_behind:
                rest.append(segment)
        return Recovering(self.target, merged((*before, Segment(until, self.target), *rest)))


def merged(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """Neighbours of one revision as one; at most `SEGMENTS_MAX`: the earlier of two revisions is true of both."""
    found: list[Segment] = []
    for segment in segments:
        if found and found[-1].revision == segment.revision:
            found.pop()
        found.append(segment)
    while len(found) > SEGMENTS_MAX:
        last, behind = found.pop(), found.pop()
        found.append(Segment(last.until, min(last.revision, behind.revision)))
    return tuple(found)


def begun(base: int, target: int) -> Recovering:
    return Recovering(target, (Segment(None, base),))


def pack_position(position: VaultPosition) -> bytes:
    content = None if position.content is None else position.content.to_bytes(DIGEST_BYTES, "big")
    return _pack([position.revision, position.chain, position.keys, content])


def unpack_position(packed: bytes | None) -> VaultPosition:
    if packed is None:
        return VaultPosition()
    revision, chain, keys, *rest = msgpack.unpackb(packed)
    content = int.from_bytes(rest[0], "big") if rest and rest[0] is not None else None
    return VaultPosition(revision, chain, keys, content)


def pack_lineage(lineage: VaultLineage) -> bytes:
    return _pack([lineage.cluster_id, lineage.generation, lineage.node_id])


def unpack_lineage(packed: bytes | None) -> VaultLineage | None:
    return None if packed is None else VaultLineage(*msgpack.unpackb(packed))


def pack_recovering(mark: Recovering) -> bytes:
    return _pack([mark.target, [[segment.until, segment.revision] for segment in mark.coverage]])


def unpack_recovering(packed: bytes | None) -> Recovering | None:
    if packed is None:
        return None
    target, coverage = msgpack.unpackb(packed)
    return Recovering(target, tuple(Segment(until, revision) for until, revision in coverage))


def _pack(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value)
    return packed
