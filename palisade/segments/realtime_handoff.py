"""Hands off closed realtime segments: publishes their rows as a copy of this node, and removes the log last.

One transaction publishes a segment: it sets number of rows, size and digest in the record, and compares that the record
is unchanged and that this node announces the segment. A verified copy is stored on this node before. Thus every lookup
before and after returns the same segment, once, with a node that has the same rows. The same transaction assigns the
segment if there was an assignment before (`palisade segments assign`). From then on it moves as any copy does
(`announcer.py`): this node withdraws its announcement only while every assigned node announces the segment, removes the
file once the withdrawal is released and the readers have ended, and removes the log last (`realtime_step.py`).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from palisade.base.counted import counted
from palisade.base.errors import PalisadeError
from palisade.catalog.errors import DamagedRow
from palisade.catalog.realtime import published
from palisade.catalog.realtime_rows import Columns
from palisade.catalog.rows_digest import Value
from palisade.catalog.segment import ANNOUNCED, SegmentRecord
from palisade.metastore.requests import Compare, CompareResult, CompareTarget, Put
from palisade.recovery.lifecycle import Component
from palisade.segments.assignment import holders
from palisade.segments.leased_announcements import nodes_of
from palisade.segments.names import ASSIGNMENTS, LAST_ASSIGNMENT, Wanted, assignment_key
from palisade.segments.realtime import RealtimeIngester
from palisade.segments.realtime_held import Held
from palisade.segments.realtime_step import RealtimeState, RealtimeStep, Situation, next_step, state_of
from palisade.vault.errors import VaultError
from palisade.wire.segment_errors import BadSegment, NotFetched

log = logging.getLogger(__name__)

Run = Callable[[Callable[[], bytes]], Awaitable[bytes]]

RETRY_S = 1.0
FORGET_S = 60.0
"""Longer than a lease: after this time, an opening with an unknown outcome has committed or never will."""


class RealtimeHandOff(Component):
    """A component above the announcer."""

    def __init__(self, ingester: RealtimeIngester, run: Run = asyncio.to_thread) -> None:
        """`run`: executes the encoding of a file without blocking the event loop."""
        self._ingester, self._holder, self._run = ingester, ingester.holder, run

    async def run(self) -> None:
        while True:
            self._ingester.wakeup.clear()
            done = await self.work()
            try:
                async with asyncio.timeout(None if done else RETRY_S):
                    await self._ingester.wakeup.wait()
            except TimeoutError:
                pass

    async def work(self) -> bool:
        """One step of each segment. Returns whether no step has to be repeated."""
        for held in list(self._ingester.held.values()):
            try:
                await self._step(held)
            except (PalisadeError, OSError) as error:
                if str(error) != held.error:
                    log.warning("realtime segment interrupted, retrying: name=%s error=%s", held.name, error)
                held.error = str(error)
            else:
                held.error = ""
        return not any(self._is_open(held) for held in self._ingester.held.values())

    def _is_open(self, held: Held) -> bool:
        try:
            step = next_step(situation_of(self._ingester, held))
            return bool(held.error) or held.log.closed or step is not RealtimeStep.WAIT
        except (DamagedRow, VaultError):
            return True

    async def _step(self, held: Held) -> None:
        """Raises PalisadeError, OSError."""
        now = situation_of(self._ingester, held)
        match next_step(now):
            case RealtimeStep.PUBLISH if held.published <= self._holder.vault.revision:
                await self._publish(held)
            case RealtimeStep.STORE:
                await self._store(held)
            case RealtimeStep.DROP:
                await self._ingester.discard(held)
                self._ingester.tally.handed_off += now.record is not None and now.record.used
                log.info(
                    "realtime segment removed, its copies have its rows: name=%s rows=%d", held.name, held.log.rows
                )
            case RealtimeStep.FORGET if not held.opened and await self._has_failed(held):
                await self._ingester.discard(held)

    async def _has_failed(self, held: Held) -> bool:
        """Whether an opening with an unknown outcome has failed. A transaction looks for the record, because the vault
        may be older; it is sent after the outcome of the opening is known (`settled_writes.py`).

        Raises PalisadeError."""
        if self._ingester.is_taken(held.name):
            return True
        if self._ingester.logs.now() - held.since <= FORGET_S:
            return False
        absent = Compare(held.log.header.segment.key, CompareTarget.CREATE, CompareResult.EQUAL, 0)
        return (await self._ingester.writes.write([absent], [])).succeeded

    async def _publish(self, held: Held) -> None:
        wanted = await self._store(held)
        record = self._ingester.record(held.name)
        item = self._holder.vault.get(held.log.header.segment.key)
        if record is None or item is None:
            return
        after = published(record, held.log.rows, wanted.size_bytes, wanted.digest)
        announcement = record.segment.announcement_key(self._holder.node)
        compares = [
            Compare(record.segment.key, CompareTarget.MOD, CompareResult.EQUAL, item.mod_revision),
            Compare(announcement, CompareTarget.CREATE, CompareResult.GREATER, 0),
        ]
        assignments = self._assignments(after, wanted, compares)
        done = await self._ingester.writes.write(compares, [Put(record.segment.key, after.to_bytes()), *assignments])
        if done.succeeded:
            held.published = done.revision
            log.info("realtime segment published: name=%s rows=%d", held.name, held.log.rows)

    def _assignments(self, record: SegmentRecord, wanted: Wanted, compares: list[Compare]) -> list[Put]:
        """Assignments to the nodes of the last assignment, whose key is compared; none if it was of other segments."""
        item = self._holder.vault.get(LAST_ASSIGNMENT)
        revision = 0 if item is None else item.mod_revision
        compares.append(Compare(LAST_ASSIGNMENT, CompareTarget.MOD, CompareResult.EQUAL, revision))
        name, last = str(record.segment), {} if item is None else json.loads(item.value)
        if item is None or not name.startswith(last["prefix"]):
            return []
        nodes = holders(name, last["nodes"], record.replicas)
        return [Put(assignment_key(node, name), wanted.to_value()) for node in nodes]

    async def _store(self, held: Held) -> Wanted:
        """Store the rows as a verified and synced copy of this node.

        Raises NotFetched, BadSegment, RealtimeDamaged, OSError."""
        name, log_, segment_store = held.name, held.log, self._holder.segment_store
        values = await self._ingester.values(held)
        content = await self._run(partial(parquet, log_.header.columns, values))
        wanted = await segment_store.verifier.of(content)
        if segment_store.verifier.rows(wanted.digest) != log_.rows:
            raise BadSegment(
                f"the file of segment {name} differs from its {counted(log_.rows, 'row')}; it was not stored"
            )
        record = self._ingester.record(name)
        if record is not None and not record.is_growing and record.digest != wanted.digest:
            raise NotFetched(f"the log of segment {name} has other rows than its record; the record is kept")
        if not segment_store.has(name, wanted.digest):
            await self._holder.keep(name, wanted, content)
        return wanted


def state_in(ingester: RealtimeIngester, held: Held) -> RealtimeState:
    """The state by its record. While the record cannot be read, the segment is served as if it grew."""
    try:
        return state_of(situation_of(ingester, held))
    except (DamagedRow, VaultError):
        return RealtimeState.REALTIME


def situation_of(ingester: RealtimeIngester, held: Held) -> Situation:
    """Raises DamagedRow, and VaultError while a running node gets a snapshot."""
    name, holder = held.name, ingester.holder
    record = ingester.record(name)
    if record is None or record.is_growing:
        return Situation(record, held.log.rows, held.log.closed)
    assigned = nodes_of(holder.vault, ASSIGNMENTS, name) - {holder.node}
    return Situation(
        record,
        held.log.rows,
        held.log.closed,
        stored=holder.segment_store.has(name, record.digest),
        assigned=name in holder.wanted,
        handed_off=bool(assigned) and assigned <= nodes_of(holder.vault, ANNOUNCED, name),
        expired=holder.is_expired(name),
    )


def parquet(columns: Columns, rows: list[list[Value]]) -> bytes:
    """A file with these rows. Raises BadRows."""
    from palisade.catalog.parquet_rows import parquet_of, table_of

    return parquet_of(table_of(columns, rows))
