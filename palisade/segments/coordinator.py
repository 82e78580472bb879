"""The coordinator, on the leader: marks segments as loaded, and removes abandoned publications (S2, seed 003).

Queries rely on `loaded`, so it is durable: it is set by a transaction that compares the record and the existence of an
announcement. A restarted coordinator reads its whole state from the store. Two nodes that both consider themselves the
leader do no harm, because each write compares the rows that it depends on.

A publication is abandoned if it makes no progress for `ABANDONED_S`. The coordinator first rewrites its manifest,
unchanged: every transaction of a publication compares the manifest, so a slow publisher can write no further record.
Then it deletes the records, and last it removes the generation from the list.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from palisade.base.errors import PalisadeError
from palisade.catalog.publication import abandoned
from palisade.client.publishing import PublishingStore, read_data_source, unchanged
from palisade.metastore.requests import Compare, CompareResult, CompareTarget, DeleteRange, Put
from palisade.metastore.results import TxnResult
from palisade.raftgroup.errors import NodeFailed
from palisade.segments.broker_view import BrokerView, PendingGeneration, Unmarked

log = logging.getLogger(__name__)

LOOK_S = 0.05
RETRY_S = 0.5
MARKED_MAX = 200
"""Records per transaction, each with two compares."""
DELETED_MAX = 500
ABANDONED_S = 60.0


class ViewSource(Protocol):
    """`segments.broker.SegmentBroker`."""

    async def view(self) -> BrokerView: ...


class LeadingGroup(Protocol):
    """`raftgroup.group.Group`."""

    @property
    def leads(self) -> bool:
        """Whether this node leads the group now."""
        ...

    async def until_leads(self) -> None: ...


class SegmentCoordinator:
    """`now`: seconds on a clock that never goes back."""

    def __init__(
        self, broker: ViewSource, store: PublishingStore, group: LeadingGroup, now: Callable[[], float]
    ) -> None:
        self._broker, self._store, self._group, self._now = broker, store, group, now
        self._since: dict[PendingGeneration, float] = {}

    async def run(self) -> None:
        """Runs until cancelled. Raises NodeFailed when the node has stopped itself."""
        while True:
            if not self._group.leads:
                self._since.clear()
                await self._group.until_leads()
            await asyncio.sleep(LOOK_S)
            if not self._group.leads:
                continue
            try:
                await self.work()
            except NodeFailed:
                raise
            except PalisadeError as error:
                log.debug("coordinator of segments interrupted, retrying: error=%s", error)
                await asyncio.sleep(RETRY_S)

    async def work(self) -> None:
        """One pass. Raises PalisadeError."""
        view = await self._broker.view()
        if found := view.unmarked(MARKED_MAX):
            await self._mark(found)
        for each in self._abandoned(view.publications()):
            await self._sweep(each)

    async def _mark(self, found: Sequence[Unmarked]) -> None:
        """Marks them in one transaction; if a record has changed meanwhile, one by one."""
        if not (await self._txn(found)).succeeded and len(found) > 1:
            for each in found:
                await self._txn([each])

    async def _txn(self, found: Iterable[Unmarked]) -> TxnResult:
        compares, puts = list[Compare](), list[Any]()
        for record, revision, segment, node in found:
            compares += [
                Compare(segment.key, CompareTarget.MOD, CompareResult.EQUAL, revision),
                Compare(segment.announcement_key(node), CompareTarget.VERSION, CompareResult.GREATER, 0),
            ]
            puts.append(Put(segment.key, record.marked_loaded().to_bytes()))
        return await self._store.segments_txn(compares, puts)

    def _abandoned(self, publications: Sequence[PendingGeneration]) -> list[PendingGeneration]:
        now = self._now()
        self._since = {each: self._since.get(each, now) for each in publications}
        return [each for each, since in self._since.items() if now - since >= ABANDONED_S]

    async def _sweep(self, found: PendingGeneration) -> None:
        """Raises NotAllowed: the publication has ended meanwhile."""
        manifest, revision, present = await read_data_source(self._store, found.data_source)
        if revision != found.manifest_revision:
            return
        keys = abandoned(manifest, present, found.generation)
        fenced = await self._store.segments_txn(
            [unchanged(manifest, revision)], [Put(manifest.key, manifest.to_bytes())]
        )
        if not fenced.succeeded:
            return
        same = [unchanged(manifest, fenced.revision)]
        manifest, _, present = await read_data_source(self._store, found.data_source)
        keys = abandoned(manifest, present, found.generation)
        for start in range(0, len(keys), DELETED_MAX):
            await self._store.segments_txn(same, [DeleteRange(key) for key in keys[start : start + DELETED_MAX]])
        ended = manifest.without_pending(found.generation)
        done = await self._store.segments_txn(same, [Put(manifest.key, ended.to_bytes())])
        if done.succeeded:
            log.info(
                "abandoned publication removed: data_source=%s generation=%d records=%d",
                found.data_source, found.generation, len(keys),
            )  # fmt: skip
