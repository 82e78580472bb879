"""Copies of segments come and go in the right order (issue 17, seed 003).

- A data node announces only what it has: the file with the rows of the record, or the log of a segment that grows.
- A copy that queries may count on is removed only once no lookup that begins now can return its node, and another node
  announced the segment after that node had ceased to.
- The log of a realtime segment is removed only if a complete copy has its rows, or if no query counts on them.

Records and announcements are read from the committed rows, files from the disks.
"""

from __future__ import annotations

from functools import lru_cache, partial

from palisade.metastore.results import RevisionEvents
from palisade.segments.segment_store import file_of
from palisade.segments.verification import version_of
from palisade.wire.segment_errors import BadSegment
from tests.sim.checkers.segment_lookups import SegmentLookups
from tests.sim.node import Host
from tests.sim.segment_states import ANNOUNCED, SegmentState, SegmentStates, grows, needed
from tests.sim.world import Checker

LATE_S = 10.0
"""So long after the start of a node, writes of its previous start may still be committed: longer than their lease."""


class SegmentCopies(Checker):
    name = "segment copies"

    @property
    def _states(self) -> SegmentStates:
        return self.world.checker(SegmentLookups).states

    def wired(self, host: Host) -> None:
        host.disk.segments.on_remove = partial(self._removing, host)

    def committed(self, events: RevisionEvents) -> None:
        for event in events.events:
            if event.kv.key.startswith(ANNOUNCED) and not event.delete:
                node, _, name = event.kv.key.removeprefix(ANNOUNCED).decode().partition("/")
                self._check_announcement(self._states.latest, self.world.hosts[node], name)

    def _check_announcement(self, now: SegmentState, host: Host, name: str) -> None:
        if self.world.now - host.began < LATE_S:
            return
        record = now.record(name)
        has_log = bool(host.disk.segments.logs.get(file_of(name)))
        is_ingester = record is not None and record.get("ingester") == host.id
        if record is None or not (has_copy(host, name, record["digest"]) or (is_ingester and has_log)):
            self.fail(f"{host.id} announces segment {name} at {now.revision} without having it: {record}")
        self.world.count("copy of a segment: announced")

    def _removing(self, host: Host, file: str, is_log: bool) -> None:
        name = file.replace("@", "/")
        if file.startswith("."):
            return
        if is_log:
            self._check_log(host, name)
        else:
            self._check_copy(host, name)

    def _check_copy(self, host: Host, name: str) -> None:
        """The transaction that withdraws it sees that others announce the segment, or that no query needs it."""
        states, content = self._states, host.disk.segments.files.get(file_of(name))
        record = states.latest.record(name)
        if content is None or not counts(record, content):
            self.world.count("copy of a segment: removed, not needed")
            return
        released = self.world.checker(SegmentLookups).released
        for each in states.backwards(released):
            if each.announces(host.id, name):
                self.fail(
                    f"{host.id} removes segment {name}, for which lookups return it: announced at {each.revision}, "
                    f"and {released} is released"
                )
        others = [each for each in self.world.data_nodes if each != host.id]
        for each in states.backwards():
            if each.announces(host.id, name):
                break
            if each.nodes(name, others) or not counts(each.record(name), content):
                self.world.count("copy of a segment: removed, others have it")
                return
        self.fail(f"{host.id} removes segment {name}, which no other node has announced since it was withdrawn")

    def _check_log(self, host: Host, name: str) -> None:
        record = self._states.latest.record(name)
        if record is None or record.get("ingester") != host.id or not needed(record):
            self.world.count("realtime: log removed, not needed")
            return
        if grows(record):
            self.fail(f"{host.id} removes the rows of segment {name}, which grows")
        if not any(has_copy(each, name, record["digest"]) for each in self.world.hosts.values()):
            self.fail(f"{host.id} removes the rows of segment {name}, of which no node has a copy")
        self.world.count("copy of a segment: log removed, handed off")


def counts(record: object, content: bytes) -> bool:
    """Whether queries may count on this content."""
    return isinstance(record, dict) and needed(record) and record["digest"] == digest_of(content)


def has_copy(host: Host, name: str, digest: str) -> bool:
    content = host.disk.segments.files.get(file_of(name))
    return content is not None and bool(digest) and digest_of(content) == digest


@lru_cache(maxsize=1000)
def digest_of(content: bytes) -> str:
    """Empty for a damaged file."""
    try:
        return version_of(content).digest
    except BadSegment:
        return ""
