"""How two sides find out which keys only one of them has, when those are few. Pure.

A *span* is a stretch of keys with up to 32 keys that are live, and says how many these are and the sum of their hashes.
Who has all of them and some more knows how many more, and, of one or two, which: what is too much in the sum tells. So
nothing is said of single keys, and a span without a difference is passed over by counting. What is found this way is
no proof; the sum of the bucket is (`palisade/base/digest.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple
from zlib import crc32

KEYS_PER_SPAN = 32
SUM_MASK = (1 << 32) - 1
TOLD_BY_SUM_MAX = 2
HEADER = Struct(">IHH")


class Span(NamedTuple):
    """From where the one before has ended up to `end`; empty: to the last key there is."""

    end: bytes
    keys: int
    total: int


def pack_spans(keys: Sequence[bytes], until: bytes | None) -> bytes:
    """Of live keys, in order, and all there are up to `until` (None: to the last key)."""
    hashes = list(map(crc32, keys))
    ends = [*keys[KEYS_PER_SPAN::KEYS_PER_SPAN], until or b""]
    parts = []
    for number, end in enumerate(ends):
        some = hashes[number * KEYS_PER_SPAN : (number + 1) * KEYS_PER_SPAN]
        parts.append(HEADER.pack(sum(some) & SUM_MASK, len(some), len(end)) + end)
    return b"".join(parts)


def unpack_spans(payload: bytes) -> list[Span]:
    """Raises ValueError for what is no sequence of spans."""
    spans, at, size, unpack = [], 0, len(payload), HEADER.unpack_from
    while at < size:
        if at + HEADER.size > size:
            raise ValueError("half a span")
        total, count, length = unpack(payload, at)
        start, at = at + HEADER.size, at + HEADER.size + length
        if at > size:
            raise ValueError("half a span")
        spans.append(Span(payload[start:at], count, total))
    return spans


def last_in(own: Sequence[bytes], first: int, span: Span) -> int:
    """Where the keys of the span end in `own`, which is in order; they begin at `first`."""
    return bisect_left(own, span.end, first) if span.end else len(own)


def surplus(own: Sequence[bytes], span: Span) -> list[bytes] | None:
    """Which of its own keys of this span the other side does not have; None: the span does not tell."""
    more = len(own) - span.keys
    if more == 0:
        return []
    if span.keys == 0:
        return list(own)
    if not 0 < more <= TOLD_BY_SUM_MAX:
        return None
    hashes = list(map(crc32, own))
    wanted = (sum(hashes) - span.total) & SUM_MASK
    if more == 1:
        found = [(number,) for number, each in enumerate(hashes) if each == wanted]
        return [own[found[0][0]]] if len(found) == 1 else None
    pairs = _pairs(hashes, wanted)
    return [own[number] for number in pairs[0]] if len(pairs) == 1 else None


def _pairs(hashes: Sequence[int], wanted: int) -> list[tuple[int, int]]:
    """Every two whose sum it is."""
    known: dict[int, list[int]] = {}
    found = []
    for number, each in enumerate(hashes):
        found += [(other, number) for other in known.get((wanted - each) & SUM_MASK, ())]
        known.setdefault(each, []).append(number)
    return found
