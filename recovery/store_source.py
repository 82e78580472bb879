"""The metadata store of this process as a source: for a voter's own recovery, and over the network for other nodes.

Linearizable reads pass the barrier first. Long answers are computed in slices that yield to the event loop, so serving
a recovery never delays a heartbeat. Nothing is kept between two requests, so any replica that retains the revision
gives the same answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from palisade.base.digest import members_of
from palisade.metastore.errors import Compacted, FutureRevision, InvalidRequest, TooManyPins
from palisade.metastore.requests import Command, Pin, Unpin
from palisade.metastore.state_machine import MetaStore
from palisade.recovery.chunks import chunk_of
from palisade.recovery.errors import PinRefused, SourceCompacted, SourceUnavailable
from palisade.recovery.ports import Chunk, ClusterSums, SourceState
from palisade.vault.change import Revision

CHUNK_BYTES = 512 * 1024
SLICES_PER_CHUNK = 64
"""A chunk ends after this time even if it found little: the requester can record progress, and renew its pin."""


class StoreSource:
    """A `ClusterSource` for `node`. The callables raise SourceUnavailable if the group cannot do it now.

    `barrier` makes the next read linearizable, `propose` returns a command's result, `others` yields to other tasks,
    `news` returns when LM has passed a revision, or after a bounded time.
    """

    def __init__(
        self,
        node: str,
        store: MetaStore,
        *,
        barrier: Callable[[], Awaitable[None]],
        propose: Callable[[Command], Awaitable[Any]],
        others: Callable[[], Awaitable[None]],
        news: Callable[[int], Awaitable[None]],
    ) -> None:
        self._pin = f"recovery/{node}"
        self._store, self._feed = store, store.feed
        self._barrier, self._propose, self._others, self._news = barrier, propose, others, news

    async def state(self, chain_at: int) -> SourceState:
        await self._barrier()
        store, lineage = self._store, self._store.lineage
        if not lineage.cluster_id:
            raise SourceUnavailable("the cluster has no id yet: wait until its first leader has chosen one")
        return SourceState(
            lineage.cluster_id,
            lineage.generation,
            store.revision,
            store.minimal_revision,
            store.key_count,
            self._feed.chain_at(chain_at),
        )

    async def changes(self, first: int, last: int) -> Sequence[Revision]:
        with self._translated_refusals():
            if first > self._store.revision:
                await self._news(first - 1)
            return self._feed.changes(first, last, CHUNK_BYTES)

    async def pin(self, revision: int, life_s: float) -> float:
        with self._translated_refusals():
            result = await self._propose(Pin(self._pin, revision, max(1, int(life_s * 1000))))
            remaining_ms: int = result.remaining_ms
            return remaining_ms / 1000

    async def unpin(self) -> None:
        with self._translated_refusals():
            await self._propose(Unpin(self._pin))

    async def sums(self, revision: int) -> ClusterSums:
        with self._translated_refusals():
            await self._reach(revision)
            sums = self._feed.sums_at(revision)
            while not sums.step():
                await self._others()
            chain = self._feed.chain_at(revision)
            if chain is None:
                minimal = self._store.minimal_revision
                raise SourceCompacted(f"revision {revision} has just been compacted, MM is {minimal}", minimal)
            return ClusterSums(revision, chain, sums.sums)

    async def rows(self, revision: int, buckets: bytes, newer_than: int, start: bytes, end: bytes | None) -> Chunk:
        with self._translated_refusals():
            await self._reach(revision)
            members, at = members_of(buckets), start
            found: list[bytes] = []
            size, until = 0, None
            for _ in range(SLICES_PER_CHUNK):
                rows, until = self._feed.rows(revision, members, newer_than, at, end)
                found += rows
                size += sum(map(len, rows))
                if until is None or size >= CHUNK_BYTES:
                    break
                at = until
                await self._others()
            return chunk_of(found, until)

    async def fingerprints(self, revision: int, buckets: bytes, start: bytes, end: bytes | None) -> Chunk:
        members = members_of(buckets)
        return await self._joined(revision, start, lambda at: self._feed.fingerprints(revision, members, at, end))

    async def spans(self, revision: int, start: bytes) -> Chunk:
        return await self._joined(revision, start, lambda at: self._feed.spans(revision, at))

    async def _joined(self, revision: int, start: bytes, take: Callable[[bytes], tuple[bytes, bytes | None]]) -> Chunk:
        """Slice by slice, each from the end of the previous one."""
        with self._translated_refusals():
            await self._reach(revision)
            found: list[bytes] = []
            at, until = start, None
            for _ in range(SLICES_PER_CHUNK):
                part, until = take(at)
                found.append(part)
                if until is None:
                    break
                at = until
                await self._others()
            return chunk_of(found, until)

    async def _reach(self, revision: int) -> None:
        """A replica below a revision that another replica has reported waits until it has applied it."""
        if revision > self._store.revision:
            await self._barrier()

    @contextmanager
    def _translated_refusals(self) -> Iterator[None]:
        """Translates refusals of the store. After a barrier, a future revision is of a history that is lost."""
        try:
            yield
        except Compacted as error:
            raise SourceCompacted(str(error), error.minimal_revision) from error
        except FutureRevision as error:
            raise SourceCompacted(f"{error}; the cluster had it before", self._store.minimal_revision) from error
        except (TooManyPins, InvalidRequest) as error:
            raise PinRefused(str(error)) from error
