"""A broker on a vault with a fence, in simulated time: any step of the node and of the leader may occur in a lookup.

Checker: what a lookup answers is the state of the store at the revision that it names, and was the state at some RR
between its call and its return. So an answer without missing segments is complete. The state is computed by an
independent oracle (`segment_oracle.py`).
"""

from __future__ import annotations

from collections.abc import Coroutine
from random import Random
from typing import Any, TypeVar

from palisade.catalog.keys import PERMISSIONS
from palisade.catalog.segment import ROOT
from palisade.metastore.requests import Command, Put, Range, Txn
from palisade.recovery.listeners import Listeners, Notification
from palisade.segments.broker import END, SegmentBroker
from palisade.segments.broker_view import OnMissing, SegmentAnswer
from palisade.service.fenced_reads import FencedReads
from palisade.vault.change import VaultEvent, events_of
from palisade.vault.errors import ReadRefused
from palisade.wire.segment_errors import BrokerNotSynced, NoSuchDataSource
from tests.support.fenced_world import Violation, World
from tests.support.segment_oracle import Expected, as_answered, expected
from tests.support.segment_writer import ALWAYS, SOURCE, SegmentWriter
from tests.support.vault_feed import revisions

T = TypeVar("T")


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
        self.refused = 0
        self.writer = SegmentWriter(Random(seed))
        super().__init__(seed, fault)
        self._start_broker()

    def _start_broker(self) -> None:
        self.answers = getattr(self, "answers", 0)
        self.listeners = Listeners(self.vault.revision)
        self.broker = self.broker_kind(self.listeners, lambda: self.vault, lambda: self.fenced, lambda: self.now / 1e9)
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

    def _command(self) -> Command:
        command = self.writer.command() if self.rng.random() > 0.15 else Txn()
        return command if command.success else Put(b"palisade/other", b"%d" % self.lm)

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
            answer: SegmentAnswer | None = complete(self.broker.lookup(SOURCE, ALWAYS, OnMissing.ALLOW))
            revision = answer.revision if answer else 0
        except (ReadRefused, BrokerNotSynced):
            self.refused += 1
            return
        except NoSuchDataSource:
            answer, revision = None, self.broker.revision
        finally:
            self.reading = False
        self.answers += 1
        found = None if answer is None else as_answered(answer)
        if found != self.as_of(revision):
            raise Violation(f"not the state of revision {revision}: {found} instead of {self.as_of(revision)}")
        if all(found != self.as_of(each) for each in range(before, self.rr + 1)):
            raise Violation(f"{found} was not released between the call and the return, RR {before} to {self.rr}")

    def as_of(self, revision: int) -> Expected | None:
        """From the store itself."""
        rows = self.driver.store.range(Range(ROOT, END, revision=revision)).kvs
        return expected({kv.key: kv.value for kv in rows}, SOURCE, *ALWAYS)

    def walk(self, steps: int = 60) -> int:
        """Returns the number of answered lookups. Raises Violation."""
        for _ in range(steps):
            for _ in range(self.rng.randrange(8)):
                self.step()
            self.read()
        return self.answers


__all__ = ["BrokerWorld", "Violation"]
