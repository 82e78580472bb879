"""What a broker calls complete is complete as of its revision, and was so between the call and the return (issue 17).

The truth is computed from the committed rows by an oracle that shares no code with the product
(`support/segment_oracle.py`). Beside it: a segment becomes loaded, so that queries count on it, only while a data node
announces it; and once a publication is visible, no record is added to it, so its segments appear together.
"""

from __future__ import annotations

import json
from collections import Counter

from palisade.metastore.results import Event, RevisionEvents
from palisade.segments.broker_view import SegmentAnswer
from tests.sim.backups import Base
from tests.sim.checkers.catalog_answers import released_at
from tests.sim.node import Host
from tests.sim.segment_states import MANIFESTS, RECORDS, SegmentState, SegmentStates
from tests.sim.world import Checker, World
from tests.support.segment_oracle import Expected, as_answered, expected, grows, name_in, records_of, servers
from tests.support.segment_writer import ALWAYS, SOURCE


class SegmentLookups(Checker):
    name = "segment lookups"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.states = SegmentStates()
        self._computed: dict[int, Expected | None] = {}
        """What is to be answered, by the revision of the state."""
        self.released = 0

    def turned(self, host: Host) -> None:
        self.released = max(self.released, released_at(host))

    def committed(self, events: RevisionEvents) -> None:
        for event in self.states.commit(events):
            if event.kv.key.startswith(RECORDS) and not event.delete:
                self._check_mark(events.revision, event)
                self._check_generation(events.revision, event)

    def _check_mark(self, revision: int, event: Event) -> None:
        """A record becomes loaded only while a data node announces the segment."""
        before = self.states.before.rows.get(event.kv.key)
        if not json.loads(event.kv.value)["loaded"] or (before is not None and json.loads(before)["loaded"]):
            return
        name = name_in(event.kv.key, RECORDS.decode())
        assert name is not None
        if not servers(self.states.latest.rows, name):
            self.fail(f"segment {name} is marked as loaded at {revision}, and no node announces it")
        self.world.count("segments: marked as loaded")

    def _check_generation(self, revision: int, event: Event) -> None:
        """A record is added to a publication in the transaction that makes it visible, or before."""
        before = self.states.before.rows
        name = name_in(event.kv.key, RECORDS.decode())
        manifest = before.get(MANIFESTS + name.data_source.encode()) if name else None
        if event.kv.key in before or manifest is None:
            return
        generation, found = json.loads(event.kv.value)["generation"], json.loads(manifest)
        if generation <= found["last"] and generation not in found["pending"]:
            self.fail(f"segment {name} is added at {revision} to publication {generation}, which was visible before")

    def restored(self, base: Base) -> None:
        for events in base.past:
            self.committed(events)
        self.released = base.revision

    def looked_up(self, host: Host, since: int, answer: SegmentAnswer | None, revision: int) -> None:
        """`since`: released when the lookup began. `answer` None, as of `revision`: no segment was published."""
        found = None if answer is None else as_answered(answer)
        if found != self._as_of(revision):
            self.fail(
                f"{host.id} answers a lookup as of revision {revision} with {found}, but the segments were "
                f"{self._as_of(revision)}"
            )
        if all(found != self._in(each) for each in self.states.since(since)):
            self.fail(f"{host.id} answers a lookup with {found}, which was overtaken: {since} was released before")
        if found is None:
            self.world.count("lookup of segments: unknown")
            return
        self._check_growing(host, revision, found)
        what = "missing" if found.missing else "unserved" if found.unserved else "complete" if found.parts else "empty"
        self.world.count(f"lookup of segments: {what}")
        if any(part.name.version > 1 for part in found.parts):
            self.world.count("lookup of segments: replaced")
        if any(part.name.partition for part in found.parts):
            self.world.count("lookup of segments: partitioned")

    def _check_growing(self, host: Host, revision: int, found: Expected) -> None:
        """No gap and no overlap: a segment whose rows are received is in the answer once, whatever is published."""
        named = Counter([*(part.name for part in found.parts), *found.missing, *found.unserved])
        for name, record in records_of(self.states.at(revision).rows, SOURCE).items():
            if grows(record) and record["replicas"]:
                self.world.count("lookup of segments: realtime")
                if named[name] != 1:
                    self.fail(f"{host.id} answers at {revision} with segment {name}, which grows, {named[name]} times")

    def _as_of(self, revision: int) -> Expected | None:
        return self._in(self.states.at(revision))

    def _in(self, state: SegmentState) -> Expected | None:
        if state.revision not in self._computed:
            self._computed[state.revision] = expected(state.rows, SOURCE, *ALWAYS)
        return self._computed[state.revision]
