"""Finds the keys that only one of two sides has, if they are few. Pure.

A *span* is a key range with up to 32 live keys, described by their number and the sum of their hashes. A side that has
all of them and some more computes how many more, and for one or two also which, from the surplus of the sum. Thus no
single keys are sent, and a span without a difference is skipped by counting. The result is not proof; the sum of the
bucket is (`palisade/base/digest.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple
from zlib import crc32

KEYS_PER_SPAN = 32
SUM_MASK = (1 << 32) - 1
FOUND_BY_SUM_MAX = 2
HEADER = Struct(">IHH")


class Span(NamedTuple):
    """From the end of the previous span up to `end`; empty: to the last key."""

    end: bytes
    keys: int
    total: int


def pack_spans(keys: Sequence[bytes], until: bytes | None) -> bytes:
    """The spans of live keys, which are in order and complete up to `until` (None: to the last key)."""
    hashes = list(map(crc32, keys))
    ends = [*keys[KEYS_PER_SPAN::KEYS_PER_SPAN], until or b""]
    parts = []
    for number, end in enumerate(ends):
        some = hashes[number * KEYS_PER_SPAN : (number + 1) * KEYS_PER_SPAN]
        parts.append(HEADER.pack(sum(some) & SUM_MASK, len(some), len(end)) + end)
    return b"".join(parts)


def unpack_spans(payload: bytes) -> list[Span]:
    """Raises ValueError if the payload is not a sequence of spans."""
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
    """The index in `own`, which is ordered, where the keys of the span end; they begin at `first`."""
    return bisect_left(own, span.end, first) if span.end else len(own)


def surplus(own: Sequence[bytes], span: Span) -> list[bytes] | None:
    """Which of its own keys in this span the other side does not have; None: cannot be determined."""
    more = len(own) - span.keys
    if more == 0:
        return []
    if span.keys == 0:
        return list(own)
    if not 0 < more <= FOUND_BY_SUM_MAX:
        return None
    hashes = list(map(crc32, own))
    wanted = (sum(hashes) - span.total) & SUM_MASK
    if more == 1:
        found = [(number,) for number, each in enumerate(hashes) if each == wanted]
        return [own[found[0][0]]] if len(found) == 1 else None
    pairs = _pairs(hashes, wanted)
    return [own[number] for number in pairs[0]] if len(pairs) == 1 else None


def _pairs(hashes: Sequence[int], wanted: int) -> list[tuple[int, int]]:
    """All pairs with this sum."""
    known: dict[int, list[int]] = {}
    found = []
    for number, each in enumerate(hashes):
        found += [(other, number) for other in known.get((wanted - each) & SUM_MASK, ())]
        known.setdefault(each, []).append(number)
    return found
