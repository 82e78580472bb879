"""What a broker calls complete is complete as of its revision, and was so between the call and the return (issue 17).

The truth is what was committed: the rows of segments at each revision, in a view of their own. A segment becomes
loaded, so that queries count on it, only while a data node announces it.
"""

from __future__ import annotations

from palisade.catalog.segment import ANNOUNCED, RECORDS, ROOT, SegmentRecord, announced_by
from palisade.catalog.timeline import Interval
from palisade.metastore.results import RevisionEvents
from palisade.segments.broker import ViewFeed
from palisade.segments.broker_view import OnMissing, SegmentAnswer
from palisade.vault.change import Item
from palisade.wire.segment_errors import NoSuchDataSource
from tests.sim.backups import Base
from tests.sim.checkers.catalog_answers import released_at
from tests.sim.node import Host
from tests.sim.world import Checker, World

SOURCE = "flights"
ALWAYS = Interval(0, 1_000)


class SegmentLookups(Checker):
    name = "segment lookups"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._states: list[tuple[int, dict[bytes, Item]]] = [(0, {})]
        """The rows of segments from each revision on that has changed them."""
        self.released = 0

    def turned(self, host: Host) -> None:
        self.released = max(self.released, released_at(host))

    def committed(self, events: RevisionEvents) -> None:
        changed = [event for event in events.events if event.kv.key.startswith(ROOT)]
        if not changed:
            return
        rows = dict(self._states[-1][1])
        for event in changed:
            rows.pop(event.kv.key, None)
            if not event.delete:
                rows[event.kv.key] = Item(*event.kv)
        self._states.append((events.revision, rows))
        for event in changed:
            if event.kv.key.startswith(RECORDS) and not event.delete:
                self._check_mark(events.revision, event.kv.key, event.kv.value)

    def _check_mark(self, revision: int, key: bytes, value: bytes) -> None:
        """A record becomes loaded only while a data node announces the segment."""
        record, before = SegmentRecord.from_bytes(key, value), self._states[-2][1].get(key)
        was_loaded = before is not None and SegmentRecord.from_bytes(key, before.value).loaded
        if record.loaded and not was_loaded:
            rows = self._states[-1][1]
            if not any(each.startswith(ANNOUNCED) and announced_by(each)[1] == record.segment for each in rows):
                self.fail(f"segment {record.segment} is marked as loaded at {revision}, and no node announces it")
            self.world.count("segments: marked as loaded")

    def restored(self, base: Base) -> None:
        for events in base.past:
            self.committed(events)
        self.released = base.revision

    def looked_up(self, host: Host, since: int, answer: SegmentAnswer) -> None:
        """`since`: released when the lookup began."""
        found = content(answer)
        if found != self._content(answer.revision):
            self.fail(
                f"{host.id} answers a lookup as of revision {answer.revision} with {found}, but the segments were "
                f"{self._content(answer.revision)}"
            )
        later = [revision for revision, _ in self._states if since < revision]
        if all(found != self._content(revision) for revision in (since, *later)):
            self.fail(f"{host.id} answers a lookup with {found}, which was overtaken: {since} was released before")
        self.world.count(f"segments: {'missing' if answer.missing else 'complete' if answer.parts else 'empty'}")

    def _content(self, revision: int) -> object:
        rows = next(rows for since, rows in reversed(self._states) if since <= revision)
        feed = ViewFeed()
        for _ in feed.rows(rows.values(), revision):
            pass
        try:
            return content(feed.view.lookup(SOURCE, ALWAYS, OnMissing.ALLOW))
        except NoSuchDataSource:
            return ((), (), ())


def content(answer: SegmentAnswer) -> object:
    return answer.parts, answer.missing, answer.unserved
