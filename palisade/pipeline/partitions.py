"""Divides a read among tasks. Pure.

A state is divided at sampled keys of the same revision into ranges with about equally many keys; a history into ranges
of revisions. Each part has the addresses in a different order, so the tasks read from different nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from palisade.metastore.mvcc import end_of

PARTS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class ReadPart:
    """[key, range_end) at revision `last`; of a history (`first` above 0) its changes from `first` to `last`.

    `endpoints`: in the order in which they are tried.
    """

    key: bytes
    range_end: bytes
    first: int
    last: int
    endpoints: tuple[str, ...]


def count_of_parts(rows: int, wanted: int, rows_per_part: int) -> int:
    """`wanted` 0: by the number of rows."""
    return max(1, min(PARTS_MAX, wanted or -(-rows // rows_per_part)))


def parts_of_state(
    bounds: tuple[bytes, bytes], revision: int, samples: Sequence[bytes], parts: int, endpoints: Sequence[str]
) -> list[ReadPart]:
    """At most `parts`, fewer if there are not enough samples. They cover [key, range_end) without overlap, whatever the
    samples are: those of a damaged vault may be in any order, and outside of the range."""
    key, range_end = bounds
    end = end_of(range_end)
    inner = sorted({sample for sample in samples if sample > key and (end is None or sample < end)})
    parts = min(parts, len(inner) + 1)
    cuts = [key, *(inner[number * len(inner) // parts] for number in range(1, parts)), range_end]
    return [
        ReadPart(cuts[number], cuts[number + 1], 0, revision, turned(endpoints, number))
        for number in range(len(cuts) - 1)
    ]


def parts_of_history(
    bounds: tuple[bytes, bytes], first: int, last: int, parts: int, endpoints: Sequence[str]
) -> list[ReadPart]:
    """Parts that cover the revisions `first` to `last` without overlap; none without revisions."""
    revisions = last - first + 1
    parts = min(parts, revisions)
    cuts = [first + number * revisions // parts for number in range(parts + 1)] if parts > 0 else []
    return [
        ReadPart(*bounds, cuts[number], cuts[number + 1] - 1, turned(endpoints, number))
        for number in range(len(cuts) - 1)
    ]


def turned(endpoints: Sequence[str], number: int) -> tuple[str, ...]:
    start = number % len(endpoints)
    return (*endpoints[start:], *endpoints[:start])
