"""Rows of acknowledged appends are never lost, and none is invented (issue 17, seed 003).

The appender sends row number n of a segment as the value n. Thus what a segment has is known by its number of rows: at
its publication, its digest must be that of all rows from 0 on, at least those acknowledged, at most those sent. No row
is acknowledged into a segment that was given up.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from palisade.catalog.realtime_rows import columns_from
from palisade.metastore.results import RevisionEvents
from palisade.segments.realtime_handoff import parquet
from palisade.segments.verification import version_of
from tests.sim.checkers.segment_lookups import SegmentLookups
from tests.sim.segment_states import RECORDS, SegmentStates, grows, needed
from tests.sim.world import Checker, World

if TYPE_CHECKING:
    from tests.sim.node import Host

COLUMNS = columns_from({"id": "int"})


class SegmentRows(Checker):
    """`sent`, `acknowledged`: the number of rows by segment."""

    name = "segment rows"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.sent: dict[str, int] = {}
        self.acknowledged: dict[str, int] = {}

    @property
    def _states(self) -> SegmentStates:
        return self.world.checker(SegmentLookups).states

    def opened_segment(self, name: str) -> None:
        self.sent.setdefault(name, 0)
        self.acknowledged.setdefault(name, 0)

    def sends(self, name: str, rows: int) -> None:
        """The segment has so many rows if they arrive."""
        self.sent[name] = max(self.sent[name], rows)

    def appended(self, host: Host, name: str, rows: int) -> None:
        """A node acknowledges that the segment has so many rows, now."""
        record = self._states.latest.record(name)
        if record is not None and not needed(record) and record["used"]:
            self.fail(f"{host.id} acknowledges rows of segment {name}, which was given up")
        if rows > self.sent[name]:
            self.fail(f"{host.id} acknowledges {rows} rows of segment {name}, and {self.sent[name]} were sent")
        self.acknowledged[name] = max(self.acknowledged[name], rows)
        self.world.count("realtime: rows acknowledged")

    def committed(self, events: RevisionEvents) -> None:
        for event in events.events:
            key = event.kv.key
            if key.startswith(RECORDS) and not event.delete:
                self._changed(events.revision, key.removeprefix(RECORDS).decode())

    def _changed(self, revision: int, name: str) -> None:
        states = self._states
        before, now = states.before.record(name), states.latest.record(name)
        assert now is not None
        if before is None or not grows(before):
            return
        if not now["used"]:
            self.fail(f"segment {name} is marked unused at {revision}, while its ingester receives rows")
        if not needed(now):
            self.world.count("realtime: given up")
        elif now["digest"]:
            self._published(revision, name, now["rows"], now["digest"])

    def _published(self, revision: int, name: str, rows: int, digest: str) -> None:
        least, most = self.acknowledged.get(name, 0), self.sent.get(name, 0)
        if not least <= rows <= most:
            self.fail(f"segment {name} is published at {revision} with {rows} rows, of {least} to {most}")
        if digest != digest_of_first(rows):
            self.fail(f"segment {name} is published at {revision} with other rows than the first {rows}")
        self.world.count("realtime: published")


@lru_cache(maxsize=1000)
def digest_of_first(rows: int) -> str:
    return version_of(parquet(COLUMNS, [[number] for number in range(rows)])).digest
