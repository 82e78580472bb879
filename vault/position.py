"""The small records of META: the position of a vault, its lineage, and an unfinished snapshot. Pure.

*Coverage* states the revision as of which each key range is known while a snapshot is applied in chunks: keys before
`until` of the first segment as of its revision, and so on; the last segment has no end. Changes after a segment's
revision are still missing. Thus committed chunks stay useful even if the next attempt has a later target.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgpack

from palisade.base.digest import DIGEST_BYTES, NO_DIGEST

SEGMENTS_MAX = 16


@dataclass(frozen=True, slots=True)
class VaultLineage:
    """The cluster of a vault. `generation` grows with every break in the cluster's history (restore, forced start)."""

    cluster_id: str
    generation: int
    node_id: str


@dataclass(frozen=True, slots=True)
class VaultPosition:
    """`revision` is LV: everything up to it is in the vault. 0: nothing was applied yet. `keys`: number of live keys.

    `content`: the digest of the entries at this position (`palisade/base/digest.py`). None: written in format 2, or
    not known yet.
    """

    revision: int = 0
    chain: bytes = NO_DIGEST
    keys: int = 0
    content: int | None = None


@dataclass(frozen=True, slots=True)
class KnownSpan:
    """Keys before `until` (None: all that follow) are known as of `revision`, except those deleted since LV."""

    until: bytes | None
    revision: int


@dataclass(frozen=True, slots=True)
class Recovering:
    """The mark of an unfinished snapshot: the content is between LV and `target`, and must not be read."""

    target: int
    coverage: tuple[KnownSpan, ...]

    @property
    def highest(self) -> int:
        """The latest revision of which the vault may contain a part."""
        return max(segment.revision for segment in self.coverage)

    def towards(self, target: int) -> Recovering:
        return Recovering(target, self.coverage)

    def next_stretch(self) -> tuple[bytes, bytes | None, int] | None:
        """(first key, end, known as of) of the first range that is not known as of the target; None: all are."""
        start = b""
        for segment in self.coverage:
            if segment.revision < self.target:
                return start, segment.until, segment.revision
            if segment.until is None:
                return None
            start = segment.until
        return None

    def covered(self, start: bytes, until: bytes | None) -> Recovering:
        """The range from `start`, as returned by `next_stretch`, is known as of the target up to `until`."""
        before, rest = [], []
        for segment in self.coverage:
            ends_before = segment.until is not None and segment.until <= start
            begins_behind = until is not None and (segment.until is None or segment.until > until)
            if ends_before:
                before.append(segment)
            elif begins_behind:
                rest.append(segment)
        return Recovering(self.target, merged((*before, KnownSpan(until, self.target), *rest)))


def merged(segments: tuple[KnownSpan, ...]) -> tuple[KnownSpan, ...]:
    """Merges neighbours of the same revision; at most `SEGMENTS_MAX`: two segments merge at the earlier revision."""
    found: list[KnownSpan] = []
    for segment in segments:
        if found and found[-1].revision == segment.revision:
            found.pop()
        found.append(segment)
    while len(found) > SEGMENTS_MAX:
        last, behind = found.pop(), found.pop()
        found.append(KnownSpan(last.until, min(last.revision, behind.revision)))
    return tuple(found)


def begun(base: int, target: int) -> Recovering:
    return Recovering(target, (KnownSpan(None, base),))


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
    return Recovering(target, tuple(KnownSpan(until, revision) for until, revision in coverage))


def _pack(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value)
    return packed
