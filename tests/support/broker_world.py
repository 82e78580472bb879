"""A broker on a vault with a fence, in simulated time: any step of the node and of the leader may occur in a lookup.

Checker: what a lookup answers is the state of the store at the revision that it names, and was the state at some RR
between its call and its return. So an answer without missing segments is complete.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from palisade.catalog.keys import PERMISSIONS
from palisade.catalog.publication import Manifest
from palisade.catalog.segment import ROOT, Segment, SegmentRecord
from palisade.catalog.timeline import Interval, SegmentId
from palisade.metastore.requests import DeleteRange, Put, Range, Txn
from palisade.recovery.listeners import Listeners, Notification
from palisade.segments.broker import END, SegmentBroker, ViewFeed
from palisade.segments.broker_view import OnMissing, SegmentAnswer
from palisade.service.fenced_reads import FencedReads
from palisade.vault.change import Item, VaultEvent, events_of
from palisade.vault.errors import ReadRefused
from palisade.wire.segment_errors import BrokerNotSynced, NoSuchDataSource
from tests.support.fenced_world import Violation, World
from tests.support.vault_feed import revisions

DIGEST = "sha256:" + "0" * 64
NODES = ("a", "b")
STARTS = (0, 4, 8)
ALWAYS = Interval(0, 12)
T = TypeVar("T")


def segment(start: int, version: int) -> Segment:
    return Segment("flights", SegmentId(Interval(start, start + 4), version, 0))


def complete(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that waits for nothing outside of the simulation."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        found: T = ended.value
        return found
    raise RuntimeError("the coroutine waits for the event loop")


class BrokerWorld(World):
    """`fault` is planted by the test in `broker`; the others are those of `World`."""

    broker_kind: type[SegmentBroker] = SegmentBroker

    def __init__(self, seed: int, fault: str = "") -> None:
        self.records: dict[Segment, SegmentRecord] = {}
        self.announced: set[bytes] = set()
        self.manifest = Manifest("flights")
        self.refused = 0
        super().__init__(seed, fault)
        self._start_broker()

    def _start_broker(self) -> None:
        self.answers = getattr(self, "answers", 0)
        self.listeners = Listeners(self.vault.revision)
        self.broker = self.broker_kind(self.listeners, lambda: self.vault, lambda: self.fenced)
        self.fenced = FencedReads()
        self.fenced._reader = self.reader
        self.reader._changed = self._signalled
        watch = self.vault.staging.watch
        self.fenced._served = watch(PERMISSIONS), watch(ROOT), self.page, lambda: self.now / 1e9
        complete(self.broker.start())
        self.listeners.open()

    async def _signalled(self, _: float) -> None:
        self._sleep(0)

    def commit(self) -> None:
        """One revision of a coordinator, a data node or another writer."""
        self.driver.do(self._command())
        self.states.append({})
        self.barrier[self.lm] = self.last_grant

    def _command(self) -> Any:
        chosen = segment(self.rng.choice(STARTS), self.rng.randrange(1, 3))
        record, node = self.records.get(chosen), self.rng.choice(NODES)
        key = chosen.announcement_key(node)
        if self.rng.random() < 0.2:
            return Put(b"palisade/other", b"%d" % self.lm)
        if record is None:
            self.manifest = self.manifest.with_visible()
            self.records[chosen] = SegmentRecord(chosen, 1, 10, 100, DIGEST, 1, generation=self.manifest.last)
            puts = (Put(chosen.key, self.records[chosen].to_bytes()), Put(self.manifest.key, self.manifest.to_bytes()))
            return Txn(success=puts)
        kind = self.rng.random()
        if kind < 0.5:
            if key in self.announced:
                self.announced.remove(key)
                return DeleteRange(key)
            self.announced.add(key)
            return Put(key, b"")
        if kind < 0.8 and record.used and record.replicas and chosen.announcement_key(node) in self.announced:
            return self._put(record.marked_loaded())
        if kind < 0.87:
            return self._put(record.with_replicas(self.rng.randrange(2)) if record.used else record)
        if kind < 0.93:
            return self._put(record.marked_unused())
        return Put(b"palisade/other", b"")

    def _put(self, record: SegmentRecord) -> Put:
        self.records[record.segment] = replace(record)
        return Put(record.segment.key, record.to_bytes())

    # The node

    def advance(self, last: int) -> None:
        """In one turn of the loop, so no lookup goes on within it."""
        reading, self.reading = self.reading, False
        try:
            self._advance(last)
        finally:
            self.reading = reading

    def _advance(self, last: int) -> None:
        """One by one: listeners first, then the vault. Or by a leap: the vault first."""
        found = revisions(self.driver, self.vault.revision + 1, last)
        if self.rng.random() < 0.5:
            for each in found:
                complete(self.listeners.notify(Notification(each.number, events_of(each))))
            self.vault.apply(found)
            return
        latest = {event.key: event for each in found for event in events_of(each)}
        self.vault.apply(found)
        events = [VaultEvent(event.key, last, event.item) for event in latest.values()]
        complete(self.listeners.notify(Notification(last, events)))

    def restart(self) -> None:
        if self.reading:
            return
        super().restart()
        self.reader = self._reader()
        self._start_broker()

    # Lookups

    def read(self) -> None:
        before = self.rr
        self.reading = True
        try:
            answer: SegmentAnswer | None = complete(self.broker.lookup("flights", ALWAYS, OnMissing.ALLOW))
            revision = answer.revision if answer else 0
        except (ReadRefused, BrokerNotSynced):
            self.refused += 1
            return
        except NoSuchDataSource:
            answer, revision = None, self.broker.revision
        finally:
            self.reading = False
        self.answers += 1
        found = content(answer)
        if found != content(self.as_of(revision)):
            raise Violation(f"not the state of revision {revision}: {found} instead of {content(self.as_of(revision))}")
        if all(found != content(self.as_of(each)) for each in range(before, self.rr + 1)):
            raise Violation(f"{found} was not released between the call and the return, RR {before} to {self.rr}")

    def as_of(self, revision: int) -> SegmentAnswer | None:
        """From the store itself."""
        rows = self.driver.store.range(Range(ROOT, END, revision=revision)).kvs
        feed = ViewFeed()
        for _ in feed.rows((Item(*kv) for kv in rows), revision):
            pass
        try:
            return feed.view.lookup("flights", ALWAYS, OnMissing.ALLOW)
        except NoSuchDataSource:
            return None

    def walk(self, steps: int = 60) -> int:
        """Returns the number of answered lookups. Raises Violation."""
        for _ in range(steps):
            for _ in range(self.rng.randrange(8)):
                self.step()
            self.read()
        return self.answers


def content(answer: SegmentAnswer | None) -> object:
    return answer and (answer.parts, answer.missing, answer.unserved)


__all__ = ["BrokerWorld", "Violation"]
