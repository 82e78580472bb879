"""Copies of segments come and go in the right order (issue 17, seed 003).

- A data node announces only what it has: the file with the rows of the record, or the log of a segment that grows.
- A copy that queries may count on is removed only once no lookup that begins now can return its node, and another node
  announced the segment after that node had ceased to; or a TTL rule ends it.
- A rule ends a copy only if it holds when the copy is removed: one that was taken back before that, and released, ends
  none. The same for its removal from the trash.
- A query is not answered from a damaged copy.
- A copy is not removed while a query reads it that began when lookups returned its node.
- The log of a realtime segment is removed only if a complete copy has its rows, or if no query counts on them.

Records and announcements are read from the committed rows, files from the disks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial

from palisade.catalog import keys
from palisade.metastore.results import RevisionEvents
from palisade.segments.names import TRASH
from palisade.segments.retention import DATABASE
from palisade.segments.segment_store import file_of
from palisade.segments.verification import version_of
from palisade.wire.segment_errors import BadSegment
from tests.sim.checkers.segment_lookups import SegmentLookups
from tests.sim.node import Host
from tests.sim.segment_states import ANNOUNCED, SegmentState, SegmentStates, grows, needed
from tests.sim.world import Checker, World

RULE = keys.at(keys.TTL, DATABASE)
LATE_S = 10.0
"""So long after the start of a node, writes of its previous start may still be committed: longer than their lease."""


class SegmentCopies(Checker):
    name = "segment copies"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._rules: list[tuple[int, bool]] = [(0, False)]
        """From that revision on, whether a rule ends every segment."""
        self._expired: set[str] = set()
        """Of which a rule has ended a copy."""
        self._readers: Counter[tuple[str, int, str]] = Counter()
        """Queries by node, number of its start, and segment."""

    @property
    def _states(self) -> SegmentStates:
        return self.world.checker(SegmentLookups).states

    def wired(self, host: Host) -> None:
        host.disk.segments.on_remove = partial(self._removing, host)

    def committed(self, events: RevisionEvents) -> None:
        for event in events.events:
            if event.kv.key == RULE:
                self._rules.append((events.revision, not event.delete))
            if event.kv.key.startswith(ANNOUNCED) and not event.delete:
                node, _, name = event.kv.key.removeprefix(ANNOUNCED).decode().partition("/")
                self._check_announcement(self._states.latest, self.world.hosts[node], name)

    def _check_announcement(self, now: SegmentState, host: Host, name: str) -> None:
        if self.world.now - host.began < LATE_S or file_of(name) in host.disk.segments.damaged:
            return  # damage that no read has found yet
        record = now.record(name)
        has_log = bool(host.disk.segments.logs.get(file_of(name)))
        is_ingester = record is not None and record.get("ingester") == host.id
        if record is None or not (has_copy(host, name, record["digest"]) or (is_ingester and has_log)):
            self.fail(f"{host.id} announces segment {name} at {now.revision} without having it: {record}")
        self.world.count("copy of a segment: announced")

    @contextmanager
    def reading(self, host: Host, name: str) -> Iterator[None]:
        """A query that a lookup may have sent to this node."""
        reader = host.id, host.starts, name
        is_sent = self._states.at(self.world.checker(SegmentLookups).released).announces(host.id, name)
        record, content = self._states.latest.record(name), host.disk.segments.files.get(file_of(name))
        self._readers[reader] += is_sent
        try:
            yield
        finally:
            self._readers[reader] -= is_sent
        if content is None or record is None or not record["digest"] or digest_of(content) == record["digest"]:
            return
        if host.disk.segments.files.get(file_of(name)) is content:
            self.fail(f"{host.id} answers a query with segment {name}, whose file is not that of its record")

    def _is_expired(self) -> bool:
        """Whether a rule holds that a linearizable read may have returned now."""
        released = self.world.checker(SegmentLookups).released
        for revision, ends in reversed(self._rules):
            if ends:
                return True
            if revision <= released:
                return False
        return False

    def _removing(self, host: Host, file: str, is_log: bool) -> None:
        name = file.removeprefix(TRASH).replace("@", "/")
        if file.startswith("."):
            return
        if is_log:
            self._check_log(host, name)
        elif file.startswith(TRASH):
            self._check_purge(host, name)
        else:
            self._check_copy(host, name)

    def _check_purge(self, host: Host, name: str) -> None:
        """A node that has it assigned keeps it in the trash, and restores it once no rule ends it any more."""
        content = host.disk.segments.files.get(TRASH + file_of(name))
        if self._is_expired():
            self.world.count("copy of a segment: purged")
        elif content is not None and all(
            each.assigns(host.id, name) and counts(each.record(name), content)
            for each in self._states.backwards(host.vault.revision if host.vault is not None else 0)
        ):
            self.fail(f"{host.id} removes segment {name} from the trash, which no rule ends")

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
        if self._readers[host.id, host.starts, name]:
            self.fail(f"{host.id} removes segment {name} while a query reads it")
        if self._is_expired():
            self._expired.add(name)
            self.world.count("copy of a segment: removed, expired")
            return
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
        if (
            name not in self._expired
            and not is_damaged(self.world, name)
            and not any(has_copy(each, name, record["digest"]) for each in self.world.hosts.values())
        ):
            self.fail(f"{host.id} removes the rows of segment {name}, of which no node has a copy")
        self.world.count("copy of a segment: log removed, handed off")


def is_damaged(world: World, name: str) -> bool:
    """On some machine, at some time."""
    return any(file_of(name) in host.disk.segments.damaged for host in world.hosts.values())


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
