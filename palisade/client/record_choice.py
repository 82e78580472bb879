"""Chooses records of segments by their keys, so that a change does not decode the others. Pure.

The times in a key have one length and sort in the order of time (`catalog/segment.py`), so they are compared as text.
`in_interval` and `overlapping` choose a key of another form, since reading its record raises DamagedRow.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

from palisade.catalog.segment import Segment, time_text
from palisade.catalog.timeline import Interval

Choice = Callable[[bytes], bool]
"""Whether the record of a key is chosen."""

Times = tuple[bytes, bytes]
PARTS = 8
"""Of the key of a record, between slashes: three of the root, data source, start, end, version, partition."""
TIME_BYTES = len("2013-03-01T00:00:00.000Z")


def everything(key: bytes) -> bool:
    return True


def named(segments: Sequence[Segment]) -> Choice:
    return frozenset(segment.key for segment in segments).__contains__


def in_interval(interval: Interval | None) -> Choice:
    """Segments that lie completely in the interval; None: all. Raises BadField."""
    if interval is None:
        return everything
    first, last = times_of(interval)

    def chosen(key: bytes) -> bool:
        times = times_in(key)
        return times is None or (first <= times[0] and times[1] <= last)

    return chosen


def overlapping(intervals: Iterable[Interval]) -> Choice:
    """Segments whose interval overlaps one of these. Raises BadField."""
    spans = joined(sorted(times_of(interval) for interval in set(intervals)))
    starts = [start for start, _ in spans]

    def chosen(key: bytes) -> bool:
        times = times_in(key)
        if times is None:
            return True
        before = bisect_left(starts, times[1])
        return before > 0 and spans[before - 1][1] > times[0]

    return chosen


def joined(ascending: Iterable[Times]) -> list[Times]:
    """Disjoint, so that of those that start before a moment the last one ends last."""
    found: list[Times] = []
    for start, end in ascending:
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def times_of(interval: Interval) -> Times:
    """Raises BadField for a time outside of the years 1 to 9999."""
    return time_text(interval.start_ms).encode(), time_text(interval.end_ms).encode()


def times_in(key: bytes) -> Times | None:
    parts = key.split(b"/")
    if len(parts) != PARTS or len(parts[4]) != TIME_BYTES or len(parts[5]) != TIME_BYTES:
        return None
    return parts[4], parts[5]
