"""The timeline of a data source: which segments answer for which time. Pure (S1, S3, seed 003, issue 17).

A *chunk* is all segments of one interval and version. A chunk is complete once each of its core partitions is settled:
queryable, or not served because its replication factor is 0. A complete chunk overshadows chunks of lower versions
for its whole interval. Until then, lookups return the older version. A chunk that was complete stays so until one of
its core segments is removed (marked unused), even if none of its servers is left: the lookup then reports what is
missing, and never falls back to older data.

The state depends only on the set of segments, never on the order in which they were put.
"""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple

from palisade.catalog.errors import BadField, NotAllowed


class Interval(NamedTuple):
    """Milliseconds since 1970, the end excluded."""

    start_ms: int
    end_ms: int

    def overlaps(self, other: Interval) -> bool:
        return self.start_ms < other.end_ms and other.start_ms < self.end_ms


class SegmentId(NamedTuple):
    """Within one data source."""

    interval: Interval
    version: int
    partition: int


class ServingState(enum.Enum):
    LOADING = "loading"
    """Used, but not loaded yet: not part of any answer."""
    QUERYABLE = "queryable"
    """Loaded once: an answer without it is incomplete."""
    UNSERVED = "unserved"
    """Its replication factor is 0: lookups list it, and do not fail for it."""


@dataclass(frozen=True, slots=True)
class TimelineSegment:
    """A used segment. Partitions below `core_partitions` form the chunk; others were appended to it."""

    id: SegmentId
    core_partitions: int
    state: ServingState

    def __post_init__(self) -> None:
        """Raises BadField."""
        start_ms, end_ms = self.id.interval
        if start_ms >= end_ms:
            raise BadField(f"interval: starts at {start_ms} ms and ends at {end_ms} ms; the end must be later")
        if self.id.version < 0 or self.id.partition < 0:
            raise BadField(f"version {self.id.version}, partition {self.id.partition}: must not be negative")
        if self.core_partitions < 1:
            raise BadField(f"core_partitions: is {self.core_partitions}, must be at least 1")

    @property
    def settled(self) -> bool:
        return self.state is not ServingState.LOADING


@dataclass(frozen=True, slots=True)
class TimelineChunk:
    """The settled segments of one interval and version, by partition."""

    interval: Interval
    version: int
    segments: tuple[TimelineSegment, ...]


class VisibleChunk(NamedTuple):
    """A part of the time line that one chunk answers for; `start_ms` to `end_ms` lie within the chunk's interval."""

    start_ms: int
    end_ms: int
    chunk: TimelineChunk


ChunkKey = tuple[Interval, int]


@dataclass(slots=True)
class _Members:
    """All segments of a chunk, also those that are loading."""

    core_partitions: int
    segments: dict[int, TimelineSegment] = field(default_factory=dict)
    complete: TimelineChunk | None = None

    def as_chunk(self, key: ChunkKey) -> TimelineChunk | None:
        """None unless each core partition is settled."""
        found = self.segments
        if not all(number in found and found[number].settled for number in range(self.core_partitions)):
            return None
        return TimelineChunk(*key, tuple(found[number] for number in sorted(found) if found[number].settled))


class Timeline:
    """The used segments of one data source."""

    def __init__(self, segments: Iterable[TimelineSegment] = ()) -> None:
        self._members: dict[ChunkKey, _Members] = {}
        self._index = ChunkIndex()
        self._starts: list[int] = []
        self._visible: list[VisibleChunk] = []
        for segment in segments:
            self.put(segment)

    def __len__(self) -> int:
        return sum(len(members.segments) for members in self._members.values())

    def __iter__(self) -> Iterator[TimelineSegment]:
        """In the order of their ids."""
        for key in sorted(self._members):
            segments = self._members[key].segments
            yield from (segments[number] for number in sorted(segments))

    def get(self, segment: SegmentId) -> TimelineSegment | None:
        members = self._members.get((segment.interval, segment.version))
        return None if members is None else members.segments.get(segment.partition)

    def put(self, segment: TimelineSegment) -> None:
        """Add a used segment or change its state. Raises NotAllowed if its chunk has other core partitions."""
        key = segment.id.interval, segment.id.version
        members = self._members.get(key)
        if members is None:
            members = self._members[key] = _Members(segment.core_partitions)
            self._index.add(key)
        elif members.core_partitions != segment.core_partitions:
            if members.segments.keys() - {segment.id.partition}:
                raise NotAllowed(
                    f"partition {segment.id.partition} of version {segment.id.version}: {segment.core_partitions} core "
                    f"partitions, but {members.core_partitions} in the others: publish them with one number"
                )
            members.core_partitions = segment.core_partitions
        members.segments[segment.id.partition] = segment
        self._update(key, members)

    def remove(self, segment: SegmentId) -> None:
        """It was marked unused. Unknown segments are ignored."""
        key = segment.interval, segment.version
        members = self._members.get(key)
        if members is None or members.segments.pop(segment.partition, None) is None:
            return
        if not members.segments:
            del self._members[key]
            self._index.remove(key)
        self._update(key, members)

    def lookup(self, interval: Interval) -> list[VisibleChunk]:
        """What answers for the interval, in order of time and cut to it; times without data are omitted."""
        start_ms, end_ms = interval
        first = bisect_right(self._starts, start_ms)
        if first and self._visible[first - 1].end_ms > start_ms:
            first -= 1
        found = self._visible[first : bisect_left(self._starts, end_ms)]
        if found:
            head, tail = found[0], found[-1]
            if head.start_ms < start_ms:
                found[0] = head._replace(start_ms=start_ms)
            if tail.end_ms > end_ms:
                found[-1] = found[-1]._replace(end_ms=end_ms)
        return found

    def overshadowed(self) -> list[SegmentId]:
        """Segments that no lookup returns, since complete chunks of higher versions cover their intervals."""
        return [segment.id for segment in self if self.is_overshadowed(segment.id)]

    def is_overshadowed(self, segment: SegmentId) -> bool:
        interval, version, _ = segment
        covered_ms = interval.start_ms
        for visible in self.lookup(interval):
            if visible.start_ms > covered_ms or visible.chunk.version <= version:
                return False
            covered_ms = visible.end_ms
        return covered_ms >= interval.end_ms

    def highest_version(self, interval: Interval) -> int | None:
        """The highest version of the used segments whose interval overlaps this one, complete or not."""
        return max((version for _, version in self._index.overlapping(interval)), default=None)

    def contradicting(self, interval: Interval, version: int) -> Interval | None:
        """The interval of a chunk of that version that overlaps without being equal: neither overshadows the other."""
        others = (other for other, found in self._index.overlapping(interval) if found == version and other != interval)
        return min(others, default=None)

    def _update(self, key: ChunkKey, members: _Members) -> None:
        now = members.as_chunk(key)
        if now != members.complete:
            members.complete = now
            self._redraw(key[0])

    def _redraw(self, interval: Interval) -> None:
        """Compute again what is visible in the interval; pieces that reach or touch its ends are cut, then joined."""
        first, last = bisect_left(self._starts, interval.start_ms), bisect_right(self._starts, interval.end_ms)
        chunks = (self._members[key].complete for key in self._index.overlapping(interval) if key in self._members)
        pieces = drawn(interval, [chunk for chunk in chunks if chunk is not None])
        if first and self._visible[first - 1].end_ms >= interval.start_ms:
            first -= 1
            pieces.insert(0, self._visible[first]._replace(end_ms=interval.start_ms))
        if last and self._visible[last - 1].end_ms > interval.end_ms:
            pieces.append(self._visible[last - 1]._replace(start_ms=interval.end_ms))
        pieces = joined(pieces)
        self._visible[first:last] = pieces
        self._starts[first:last] = [piece.start_ms for piece in pieces]


def drawn(interval: Interval, chunks: list[TimelineChunk]) -> list[VisibleChunk]:
    """The chunk with the highest version at each moment of the interval; of equal ones, that which begins last."""
    waiting = sorted(chunks, key=lambda chunk: chunk.interval, reverse=True)
    ends = {moment for chunk in chunks for moment in chunk.interval if interval.start_ms < moment < interval.end_ms}
    begun: list[tuple[int, int, int, TimelineChunk]] = []
    found = []
    for start_ms, end_ms in pairwise([interval.start_ms, *sorted(ends), interval.end_ms]):
        while waiting and waiting[-1].interval.start_ms <= start_ms:
            chunk = waiting.pop()
            heappush(begun, (-chunk.version, -chunk.interval.start_ms, -chunk.interval.end_ms, chunk))
        while begun and begun[0][3].interval.end_ms <= start_ms:
            heappop(begun)
        if begun:
            found.append(VisibleChunk(start_ms, end_ms, begun[0][3]))
    return found


def joined(pieces: list[VisibleChunk]) -> list[VisibleChunk]:
    """Adjacent pieces of one chunk become one."""
    found: list[VisibleChunk] = []
    for piece in pieces:
        if found and found[-1].end_ms == piece.start_ms and found[-1].chunk is piece.chunk:
            found[-1] = found[-1]._replace(end_ms=piece.end_ms)
        else:
            found.append(piece)
    return found


class ChunkIndex:
    """Intervals and versions, found by overlap. Those of similar length (by power of two) share one sorted list."""

    def __init__(self) -> None:
        self._by_length: dict[int, list[ChunkKey]] = {}

    def add(self, key: ChunkKey) -> None:
        insort(self._by_length.setdefault(length_class(key[0]), []), key)

    def remove(self, key: ChunkKey) -> None:
        keys = self._by_length[length_class(key[0])]
        del keys[bisect_left(keys, key)]

    def overlapping(self, interval: Interval) -> Iterator[ChunkKey]:
        for length, keys in self._by_length.items():
            first = bisect_left(keys, (Interval(interval.start_ms - (1 << length), 0), 0))
            last = bisect_left(keys, (Interval(interval.end_ms, 0), 0))
            yield from (key for key in keys[first:last] if key[0].end_ms > interval.start_ms)


def length_class(interval: Interval) -> int:
    """No interval of class n is longer than 2**n ms."""
    return (interval.end_ms - interval.start_ms - 1).bit_length()
