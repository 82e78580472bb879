"""A broker's view: which segments answer a query, which nodes serve them, and exactly what is missing. Pure (S2 to S5).

The view is a function of the coordinator's records and of the announcements, both read from the change feed. Each
change has the revision of its key; a change that is older than the last one of the same key has no effect. Thus changes
may arrive in any order and repeatedly, as callbacks over a network do (seed 003). `settle` states that every change up
to a revision has arrived; such a change that arrives again is a duplicate.

A segment is queryable if it is used, its record is marked as loaded, and an announcement of it was received, in either
order. A broker that starts later has not received the announcement, but it relies on a settled record: only a
transaction that finds an announcement marks a record as loaded. A segment without any server stays queryable; it is
then missing.
"""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from palisade.base.errors import ELSEWHERE, TRY_AGAIN
from palisade.catalog.publication import Manifest
from palisade.catalog.segment import Segment, SegmentRecord
from palisade.catalog.timeline import Interval, SegmentId, ServingState, Timeline, TimelineSegment
from palisade.wire.segment_errors import BrokerNotSynced, NoSuchDataSource, SegmentsUnavailable

COMPARED_MAX = 1_000
"""Up to this number of segments without a server, the count of missing ones omits those with a newer version."""


class OnMissing(enum.StrEnum):
    """The behaviour of a lookup if queryable segments have no server."""

    FAIL = "fail"
    WARN = "warn"
    ALLOW = "allow"


class SegmentPart(NamedTuple):
    """A segment and the part of its interval that it serves. `realtime`: its only node still receives rows."""

    segment: Segment
    start_ms: int
    end_ms: int
    nodes: tuple[str, ...]
    realtime: bool = False


@dataclass(frozen=True, slots=True)
class SegmentAnswer:
    """As of `revision`. `parts`: served segments, in order of time. `missing`: queryable, but without a server.
    `unserved`: with replication factor 0. The answer is complete if nothing is missing. A segment that serves several
    parts of the interval is in `parts` once for each of them, and in the other lists once."""

    revision: int
    parts: tuple[SegmentPart, ...]
    missing: tuple[Segment, ...]
    unserved: tuple[Segment, ...]


class SegmentPhase(enum.StrEnum):
    """The state of a segment in lookups, in the order of its life."""

    PENDING = "pending"
    """Its publication is not visible yet."""
    LOADING = "loading"
    """No data node has announced it since it was published: no query counts on it."""
    SERVED = "served"
    REALTIME = "realtime"
    """Served by its ingester, and growing."""
    MISSING = "missing"
    """Queries count on it, and no node serves it."""
    UNSERVED = "unserved"
    """With replication factor 0."""
    OVERSHADOWED = "overshadowed"
    """A newer version covers its whole interval."""
    UNUSED = "unused"


@dataclass(frozen=True, slots=True)
class SegmentState:
    """A record, the state of its segment in lookups, and the nodes that announce it."""

    record: SegmentRecord
    phase: SegmentPhase
    nodes: tuple[str, ...]


class ViewCounts(NamedTuple):
    """`known`: segments with a record or an announcement. `queryable`: queries count on them. `missing`: of these,
    those without a server; without the ones that a newer version replaces, unless there are many (`COMPARED_MAX`)."""

    known: int
    queryable: int
    missing: int


class Unmarked(NamedTuple):
    """A record at a revision, and a node that announces its segment."""

    record: SegmentRecord
    revision: int
    segment: Segment
    node: str


class PendingGeneration(NamedTuple):
    """A publication that is not visible yet: the revision of the manifest, and how many of its records are written."""

    data_source: str
    generation: int
    manifest_revision: int
    written: int


@dataclass(slots=True)
class _Entry:
    """The known state of a segment. `record_revision`: of the last change of its record, including its removal."""

    segment: Segment
    record: SegmentRecord | None = None
    record_revision: int = 0
    announced_ever: bool = False
    nodes: dict[str, tuple[int, bool]] = field(default_factory=dict)
    """Node -> (revision, whether it announces the segment)."""
    serving: tuple[str, ...] = ()
    part: SegmentPart | None = None
    """The segment with its whole interval and `serving`, made once for all lookups; None without a server."""

    def redraw(self) -> None:
        grows = self.record is not None and self.record.is_growing
        part = SegmentPart(self.segment, *self.segment.id.interval, self.serving, grows)
        self.part = part if self.serving else None


@dataclass(slots=True)
class _DataSource:
    manifest: Manifest
    manifest_revision: int = 0
    timeline: Timeline = field(default_factory=Timeline)
    entries: dict[SegmentId, _Entry] = field(default_factory=dict)
    waiting: set[SegmentId] = field(default_factory=set)
    """Marked as loaded in a record of a revision that has not settled, and without a known announcement."""
    hidden: dict[SegmentId, int] = field(default_factory=dict)
    """Segments with their generations, which are not visible yet. A visible generation stays visible."""
    written: Counter[int] = field(default_factory=Counter)
    """The number of `hidden` records of each generation."""
    unmarked: set[SegmentId] = field(default_factory=set)
    """Announced, used and visible, but not marked as loaded in their records."""
    queryable: int = 0
    """The number of segments in the timeline that queries count on, replaced ones included."""
    serverless: set[SegmentId] = field(default_factory=set)
    """Of these, the segments that no node announces."""
    retired: set[SegmentId] = field(default_factory=set)
    """Segments without a record, or with announcements that ended: dropped once no earlier change can arrive."""


class BrokerView:
    """`settled`: the revision up to which every change has arrived; 0 before the first sync."""

    def __init__(self) -> None:
        self._sources: dict[str, _DataSource] = {}
        self.settled = 0

    def put_record(self, revision: int, record: SegmentRecord) -> None:
        """Raises NotAllowed if it contradicts the other partitions of its chunk: the view keeps the older state."""
        self._change_record(revision, record.segment, record)

    def remove_record(self, revision: int, segment: Segment) -> None:
        self._change_record(revision, segment, None)

    def put_manifest(self, revision: int, manifest: Manifest) -> None:
        """Records of pending generations are invisible; those that are no longer pending become visible together."""
        source = self._source(manifest.data_source)
        if revision <= max(source.manifest_revision, self.settled):
            return
        source.manifest, source.manifest_revision = manifest, revision
        for found in list(source.hidden):
            self._update(source, found)

    def announce(self, revision: int, node: str, segment: Segment) -> None:
        self._change_announcement(revision, node, segment, announced=True)

    def withdraw(self, revision: int, node: str, segment: Segment) -> None:
        """The node dropped the segment, or its lease ended."""
        self._change_announcement(revision, node, segment, announced=False)

    def settle(self, revision: int) -> None:
        """Every change up to this revision has arrived, so records marked as loaded count."""
        self.settled = max(self.settled, revision)
        for source in self._sources.values():
            if source.waiting:
                self._stop_waiting(source)
            if source.retired:
                retired, source.retired = source.retired, set()
                for found in retired:
                    self._forget(source, found)

    def _stop_waiting(self, source: _DataSource) -> None:
        """The set is replaced: a set never shrinks, so iterating an emptied one takes as long as when it was full."""
        waiting, source.waiting = source.waiting, set()
        for found in waiting:
            if source.entries[found].record_revision <= self.settled:
                self._update(source, found)
            else:
                source.waiting.add(found)

    def lookup(self, data_source: str, interval: Interval, on_missing: OnMissing = OnMissing.FAIL) -> SegmentAnswer:
        """Raises SegmentsUnavailable (only with FAIL), NoSuchDataSource, BrokerNotSynced."""
        if not self.settled:
            raise BrokerNotSynced(f"this node has not read the segments' records yet{TRY_AGAIN}{ELSEWHERE}")
        source = self._sources.get(data_source)
        if source is None or not source.manifest.last:
            raise NoSuchDataSource(f"no segment of data source {data_source} was ever published: check the name")
        parts, missing, unserved = [], [], []
        entries = source.entries
        for start_ms, end_ms, chunk in source.timeline.lookup(interval):
            for each in chunk.segments:
                entry = entries[each.id]
                if each.state is ServingState.UNSERVED:
                    unserved.append(entry.segment)
                elif entry.part is None:
                    missing.append(entry.segment)
                elif entry.part.start_ms == start_ms and entry.part.end_ms == end_ms:
                    parts.append(entry.part)
                else:
                    parts.append(entry.part._replace(start_ms=start_ms, end_ms=end_ms))
        without_server = tuple(dict.fromkeys(missing))
        if without_server and on_missing is OnMissing.FAIL:
            raise SegmentsUnavailable([str(segment) for segment in without_server])
        return SegmentAnswer(self.settled, tuple(parts), without_server, tuple(dict.fromkeys(unserved)))

    def data_sources(self) -> list[str]:
        """The data sources with a published segment."""
        return sorted(name for name, source in self._sources.items() if source.manifest.last)

    def is_published(self, data_source: str) -> bool:
        """Whether a segment of the data source was ever published."""
        source = self._sources.get(data_source)
        return source is not None and source.manifest.last > 0

    def states(self, data_source: str) -> list[SegmentState]:
        """Every record of a data source, in the order of their ids."""
        source = self._sources.get(data_source)
        if source is None:
            return []
        return [
            SegmentState(entry.record, _phase(source, entry.record, entry), entry.serving)
            for _, entry in sorted(source.entries.items())
            if entry.record is not None
        ]

    def state(self, segment: Segment) -> SegmentState | None:
        """None without a record. The time does not grow with the number of segments."""
        source = self._sources.get(segment.data_source)
        entry = None if source is None else source.entries.get(segment.id)
        if source is None or entry is None or entry.record is None:
            return None
        return SegmentState(entry.record, _phase(source, entry.record, entry), entry.serving)

    def counts(self) -> ViewCounts:
        """Called for each scrape of the metrics, so its time is bounded."""
        sources = self._sources.values()
        missing = sum(len(each.serverless) for each in sources)
        if missing <= COMPARED_MAX:
            missing -= sum(each.timeline.is_overshadowed(found) for each in sources for found in each.serverless)
        known = sum(len(each.entries) for each in sources)
        return ViewCounts(known, sum(each.queryable for each in sources), missing)

    def unmarked(self, limit: int) -> list[Unmarked]:
        """Up to `limit` segments whose records are to be marked as loaded."""
        found: list[Unmarked] = []
        for source in self._sources.values():
            for each in islice(source.unmarked, limit - len(found)):
                entry = source.entries[each]
                if entry.record is not None:
                    found.append(Unmarked(entry.record, entry.record_revision, entry.segment, entry.serving[0]))
        return found

    def publications(self) -> list[PendingGeneration]:
        """Those that are not visible yet, with their progress."""
        return [
            PendingGeneration(name, generation, source.manifest_revision, source.written[generation])
            for name, source in self._sources.items()
            for generation in source.manifest.pending
        ]

    def _change_record(self, revision: int, segment: Segment, record: SegmentRecord | None) -> None:
        source, entry = self._entry(segment)
        if revision <= max(entry.record_revision, self.settled):
            return
        before = entry.record, entry.record_revision
        entry.record, entry.record_revision = record, revision
        try:
            self._update(source, segment.id)
        except BaseException:
            entry.record, entry.record_revision = before
            raise
        entry.redraw()

    def _change_announcement(self, revision: int, node: str, segment: Segment, *, announced: bool) -> None:
        source, entry = self._entry(segment)
        if revision <= max(entry.nodes.get(node, (0, False))[0], self.settled):
            return
        entry.nodes[node] = revision, announced
        if not announced:
            source.retired.add(segment.id)
        entry.announced_ever |= announced
        entry.serving = tuple(sorted(name for name, (_, serves) in entry.nodes.items() if serves))
        entry.redraw()
        self._update(source, segment.id)

    def _entry(self, segment: Segment) -> tuple[_DataSource, _Entry]:
        source = self._source(segment.data_source)
        return source, source.entries.setdefault(segment.id, _Entry(segment))

    def _source(self, data_source: str) -> _DataSource:
        source = self._sources.get(data_source)
        if source is None:
            source = self._sources[data_source] = _DataSource(Manifest(data_source))
        return source

    def _update(self, source: _DataSource, found: SegmentId) -> None:
        """Bring the timeline in line with the entry. Raises NotAllowed."""
        before = source.timeline.get(found)
        self._bring_in_line(source, found)
        after = source.timeline.get(found)
        source.queryable += _is_queryable(after) - _is_queryable(before)
        if _is_queryable(after) and not source.entries[found].serving:
            source.serverless.add(found)
        else:
            source.serverless.discard(found)

    def _bring_in_line(self, source: _DataSource, found: SegmentId) -> None:
        entry = source.entries[found]
        record = entry.record
        source.waiting.discard(found)
        source.unmarked.discard(found)
        if (generation := source.hidden.pop(found, None)) is not None:
            source.written[generation] -= 1
            if not source.written[generation]:
                del source.written[generation]
        if record is None:
            source.retired.add(found)
        elif not source.manifest.is_visible(record):
            source.hidden[found] = record.generation
            source.written[record.generation] += 1
        if record is None or not record.used or found in source.hidden:
            source.timeline.remove(found)
            return
        state = record.state()
        if state is ServingState.LOADING and entry.serving:
            source.unmarked.add(found)
        if state is ServingState.QUERYABLE and not entry.announced_ever and entry.record_revision > self.settled:
            source.waiting.add(found)
            state = ServingState.LOADING
        if source.timeline.get(found) != (now := TimelineSegment(found, record.core_partitions, state)):
            source.timeline.put(now)

    def _forget(self, source: _DataSource, found: SegmentId) -> None:
        """Drop the revisions that serve only to recognize late changes, once all of these have arrived."""
        entry = source.entries[found]
        for node, (revision, serves) in list(entry.nodes.items()):
            if not serves and revision <= self.settled:
                del entry.nodes[node]
        over = all(serves for _, serves in entry.nodes.values())
        if entry.record is None and not entry.nodes and entry.record_revision <= self.settled:
            del source.entries[found]
        elif not over or entry.record is None:
            source.retired.add(found)


def _is_queryable(segment: TimelineSegment | None) -> bool:
    return segment is not None and segment.state is ServingState.QUERYABLE


def _phase(source: _DataSource, record: SegmentRecord, entry: _Entry) -> SegmentPhase:
    found = record.segment.id
    if not record.used:
        return SegmentPhase.UNUSED
    timed = source.timeline.get(found)
    if found in source.hidden or timed is None:
        return SegmentPhase.PENDING
    if source.timeline.is_overshadowed(found):
        return SegmentPhase.OVERSHADOWED
    if timed.state is ServingState.UNSERVED:
        return SegmentPhase.UNSERVED
    if timed.state is ServingState.LOADING:
        return SegmentPhase.LOADING
    if not entry.serving:
        return SegmentPhase.MISSING
    return SegmentPhase.REALTIME if record.is_growing else SegmentPhase.SERVED
