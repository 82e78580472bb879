"""Random commands of publishers, coordinator and data nodes, each valid after the previous ones.

Publications replace one or more intervals at once, with several core partitions, or append a partition. Some are
staged: manifest, parts, manifest; some of those are abandoned. Realtime segments are opened for a day, published by
their ingester, or given up after its announcement has ended.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from palisade.catalog.errors import NotAllowed
from palisade.catalog.publication import Manifest, check
from palisade.catalog.realtime import check_beside, given_up, opening, published
from palisade.catalog.segment import Segment, SegmentRecord
from palisade.catalog.timeline import Interval, SegmentId
from palisade.metastore.requests import DeleteRange, Put, Txn

SOURCE = "flights"
DIGEST = "sha256:" + "0" * 64
NODES = ("a", "b")
DAY_MS, DAYS = 4, 3
ALWAYS = Interval(0, DAY_MS * DAYS)
VERSIONS_MAX = 6
"""So that histories end with something to look up: each version needs an announcement and a mark per partition."""


class SegmentWriter:
    def __init__(self, rng: Random, *, realtime: bool = True) -> None:
        self._rng, self.realtime = rng, realtime
        self.records: dict[Segment, SegmentRecord] = {}
        self.announced: set[tuple[str, Segment]] = set()
        self.manifest = Manifest(SOURCE)
        self._staged: dict[int, list[list[SegmentRecord]]] = {}
        """Pending generations, with the parts that are yet to be written."""
        self._current = 0
        """The generation whose publication has written the manifest last: each write compares its revision."""

    def command(self) -> Txn:
        lot = self._rng.random()
        if self.realtime and lot < 0.04:
            return self._open()
        if not self.records or lot < 0.08:
            return self._publication()
        if self._staged and lot < 0.25:
            return self._staged_step()
        chosen = self._rng.choice(sorted(self.records))
        record = self.records[chosen]
        if record.is_growing and record.used and record.replicas:
            return self._grown(record)
        if lot < 0.6:
            return self._announcement(chosen)
        if lot < 0.9:
            return self._mark()
        if lot < 0.93:
            return self._put(record.with_replicas(self._rng.randrange(2)) if record.used else record)
        if lot < 0.96:
            return self._put(record.not_loaded())
        return self._put(record.marked_unused())

    def _publication(self) -> Txn:
        new = self._appended() if self.records and self._rng.random() < 0.3 else self._replacement()
        if not new or not self._is_allowed(new):
            return Txn()
        if self._rng.random() < 0.5:
            self.manifest = self.manifest.with_visible()
            self._current = self.manifest.last
            return self._write([replace(each, generation=self.manifest.last) for each in new])
        self.manifest = self.manifest.with_pending()
        self._current = self.manifest.last
        self._staged[self._current] = [[replace(each, generation=self.manifest.last)] for each in new]
        return self._write([])

    def _is_allowed(self, new: list[SegmentRecord]) -> bool:
        try:
            check(self.manifest, self.records, new)
        except NotAllowed:
            return False
        return True

    def _open(self) -> Txn:
        """Of a realtime segment, announced by its ingester in the same transaction."""
        day, ingester = self._rng.randrange(DAYS), self._rng.choice(NODES)
        interval = Interval(day * DAY_MS, (day + 1) * DAY_MS)
        try:
            manifest, record = opening(self.manifest, self.records, interval, ingester, 1)
        except NotAllowed:
            return Txn()
        self.manifest, self._current = manifest, manifest.last
        self.announced.add((ingester, record.segment))
        done = self._write([record])
        return Txn(success=(*done.success, Put(record.segment.announcement_key(ingester), b"")))

    def _grown(self, record: SegmentRecord) -> Txn:
        """Its ingester publishes it, dies and returns; without it, an operator gives it up."""
        held = (record.ingester, record.segment) in self.announced
        lot = self._rng.random()
        if lot < 0.3:
            key = record.segment.announcement_key(record.ingester)
            self.announced ^= {(record.ingester, record.segment)}
            return Txn(success=(DeleteRange(key) if held else Put(key, b""),))
        if held and lot < 0.5:
            return self._put(published(record, 10, 100, DIGEST))
        if not held and lot < 0.4:
            record, audit = given_up(record, "operator", "its disk is lost", 1)
            done = self._put(record)
            return Txn(success=(*done.success, Put(audit.key, audit.to_bytes())))
        return Txn()

    def _replacement(self) -> list[SegmentRecord]:
        """New versions of adjacent days, in one interval or one for each day."""
        first = self._rng.randrange(DAYS)
        days = range(first, min(DAYS, first + self._rng.randrange(1, DAYS + 1)))
        core, version = self._rng.randrange(1, 4), 1 + max((each.id.version for each in self.records), default=0)
        if version > VERSIONS_MAX:
            return []
        intervals = [Interval(day * DAY_MS, (day + 1) * DAY_MS) for day in days]
        if self._rng.random() < 0.6:
            intervals = [Interval(intervals[0].start_ms, intervals[-1].end_ms)]
        return [
            SegmentRecord(Segment(SOURCE, SegmentId(interval, version, number)), core, 10, 100, DIGEST, 1)
            for interval in intervals
            for number in range(core)
        ]

    def _appended(self) -> list[SegmentRecord]:
        beside = self.records[self._rng.choice(sorted(self.records))]
        chunk = [each for each in self.records if each.id[:2] == beside.segment.id[:2]]
        number = max(beside.core_partitions, *(1 + each.id.partition for each in chunk))
        segment = Segment(SOURCE, beside.segment.id._replace(partition=number))
        return [SegmentRecord(segment, beside.core_partitions, 10, 100, DIGEST, 1)]

    def _staged_step(self) -> Txn:
        """Write the next part, close, or, as the coordinator does, remove what was written of an abandoned one."""
        generation = self._rng.choice(sorted(self._staged))
        parts, overtaken = self._staged[generation], generation != self._current
        if parts and not overtaken and self._rng.random() < 0.9:
            part = parts.pop(0)
            self.records.update({each.segment: each for each in part})
            return Txn(success=tuple(Put(each.segment.key, each.to_bytes()) for each in part))
        del self._staged[generation]
        self.manifest = self.manifest.without_pending(generation)
        self._current = 0
        if not parts and not overtaken:
            return self._write([])
        gone = sorted(each for each, record in self.records.items() if record.generation == generation)
        for each in gone:
            del self.records[each]
        return Txn(success=(*(DeleteRange(each.key) for each in gone), self._manifest_put()))

    def _announcement(self, chosen: Segment) -> Txn:
        node = self._rng.choice(NODES)
        key = chosen.announcement_key(node)
        self.announced ^= {(node, chosen)}
        return Txn(success=(Put(key, b"") if (node, chosen) in self.announced else DeleteRange(key),))

    def _mark(self) -> Txn:
        """As the coordinator: all records that may be marked, or one of them."""
        served = {segment for _, segment in self.announced}
        due = [
            record
            for segment, record in sorted(self.records.items())
            if segment in served and record.used and record.replicas and not record.loaded
        ]
        due = due if self._rng.random() < 0.5 else due[: self._rng.randrange(2)]
        marked = [record.marked_loaded() for record in due if self.manifest.is_visible(record)]
        self.records.update({each.segment: each for each in marked})
        return Txn(success=tuple(Put(each.segment.key, each.to_bytes()) for each in marked))

    def _put(self, record: SegmentRecord) -> Txn:
        if not self.manifest.is_visible(record):
            return Txn()
        before = self.records[record.segment]
        try:
            check_beside(
                before, record, [each for each in self.records.values() if each.segment.id[:2] == record.segment.id[:2]]
            )
        except NotAllowed:
            return Txn()
        self.records[record.segment] = record
        return Txn(success=(Put(record.segment.key, record.to_bytes()),))

    def _write(self, records: list[SegmentRecord]) -> Txn:
        self.records.update({each.segment: each for each in records})
        return Txn(success=(*(Put(each.segment.key, each.to_bytes()) for each in records), self._manifest_put()))

    def _manifest_put(self) -> Put:
        return Put(self.manifest.key, self.manifest.to_bytes())
