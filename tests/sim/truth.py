"""Commits as the world recorded them: every revision, every version of each key, the state at any revision."""

from __future__ import annotations

from bisect import bisect_right

from palisade.metastore.requests import Range
from palisade.metastore.results import Event, KeyValue, RevisionEvents
from tests.sim.history import History
from tests.sim.seen import Committed, Restored
from tests.support.store_rules import inside


class Truth:
    """Of a history with all its revisions, from the first recorded one."""

    def __init__(self, history: History) -> None:
        self.revisions: dict[int, RevisionEvents] = {}
        self.orders: dict[int, int] = {}
        """When each was committed: in the order of the first node that applied it."""
        self._versions: dict[bytes, tuple[list[int], list[Event]]] = {}
        self.disorder: list[str] = []
        self.base = 0
        """The revision of the backup that the history begins with; 0: it began empty."""
        latest = 0
        for event in history.events:
            if isinstance(event, Restored):
                self.base = event.revision
            if isinstance(event, Committed):
                revision = event.events.revision
                if revision <= latest or (latest and revision != latest + 1):
                    self.disorder.append(f"revision {revision} was committed behind {latest}")
                latest = max(latest, revision)
                self.revisions[revision] = event.events
                self.orders[revision] = event.at.order
                self._take(event.events)
        self.latest = latest

    def _take(self, events: RevisionEvents) -> None:
        for event in events.events:
            revisions, versions = self._versions.setdefault(event.kv.key, ([], []))
            revisions.append(events.revision)
            versions.append(event)

    @property
    def keys(self) -> list[bytes]:
        return sorted(self._versions)

    def at(self, key: bytes, revision: int) -> KeyValue | None:
        """The value of a key at a revision."""
        revisions, versions = self._versions.get(key, ([], []))
        place = bisect_right(revisions, revision)
        if not place or versions[place - 1].delete:
            return None
        return versions[place - 1].kv

    def changed(self, key: bytes, revision: int) -> int:
        """The revision of the latest change of a key up to `revision`; 0 if there was none."""
        revisions, _ = self._versions.get(key, ([], []))
        place = bisect_right(revisions, revision)
        return revisions[place - 1] if place else 0

    def gone(self, key: bytes) -> list[int]:
        """Every revision from which on the key was absent, and 0 for before the first."""
        revisions, versions = self._versions.get(key, ([], []))
        return [0, *(revision for revision, event in zip(revisions, versions, strict=True) if event.delete)]

    def range(self, request: Range, revision: int) -> list[KeyValue]:
        """Every key of a range at a revision, without the other options of the request."""
        found = (self.at(key, revision) for key in self.keys if inside(key, request.key, request.range_end))
        return [kv for kv in found if kv is not None]
