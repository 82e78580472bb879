"""A source with retries: while the metadata store has no majority, recovery waits and then continues.

A chunk with a wrong checksum is requested again, a limited number of times. Waiting ends with the cancellation of the
task when the node stops.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from palisade.recovery.chunks import is_whole
from palisade.recovery.errors import ChunkDamaged, SourceUnavailable
from palisade.recovery.ports import Chunk, ClusterSource, ClusterSums, RecoveryTime, SourceState
from palisade.recovery.report import RecoveryRecorder
from palisade.vault.change import Revision

WAIT_S_MIN, WAIT_S_MAX = 0.05, 2.0
CHUNK_TRIES = 5

T = TypeVar("T")


class RetryingSource:
    """A `ClusterSource` that never raises SourceUnavailable. Counts waits and bytes in the report."""

    def __init__(self, source: ClusterSource, clock: RecoveryTime, recorder: RecoveryRecorder) -> None:
        self._source, self._clock, self._recorder = source, clock, recorder

    async def _ask(self, ask: Callable[[], Awaitable[T]]) -> T:
        wait_s = WAIT_S_MIN
        while True:
            try:
                return await ask()
            except SourceUnavailable:
                self._recorder.waited()
                await self._clock.sleep(wait_s)
                wait_s = min(WAIT_S_MAX, 2 * wait_s)

    async def _chunk(self, ask: Callable[[], Awaitable[Chunk]], start: bytes) -> Chunk:
        for _ in range(CHUNK_TRIES):
            chunk = await self._ask(ask)
            self._recorder.add(bytes_fetched=len(chunk.payload))
            if is_whole(chunk) and (chunk.until is None or chunk.until > start):
                return chunk
        raise ChunkDamaged(
            f"the part of the snapshot from key {start[:64]!r} on arrived damaged {CHUNK_TRIES} times: look for a "
            "network device that alters data, then start the node again; what was received is kept"
        )

    async def state(self, chain_at: int) -> SourceState:
        state = await self._ask(lambda: self._source.state(chain_at))
        self._recorder.note(lm=state.latest, mm=state.minimal)
        return state

    async def changes(self, first: int, last: int) -> Sequence[Revision]:
        found = await self._ask(lambda: self._source.changes(first, last))
        self._recorder.add(bytes_fetched=sum([len(body) for revision in found for body in revision.bodies]))
        return found

    async def pin(self, revision: int, life_s: float) -> float:
        return await self._ask(lambda: self._source.pin(revision, life_s))

    async def unpin(self) -> None:
        """Tries only once: a pin that cannot be removed expires by itself."""
        try:
            await self._source.unpin()
        except SourceUnavailable:
            self._recorder.add(waits=1)

    async def sums(self, revision: int) -> ClusterSums:
        found = await self._ask(lambda: self._source.sums(revision))
        self._recorder.add(bytes_fetched=16 * len(found.sums))
        return found

    async def rows(self, revision: int, buckets: bytes, newer_than: int, start: bytes, end: bytes | None) -> Chunk:
        return await self._chunk(lambda: self._source.rows(revision, buckets, newer_than, start, end), start)

    async def spans(self, revision: int, start: bytes) -> Chunk:
        return await self._chunk(lambda: self._source.spans(revision, start), start)

    async def fingerprints(self, revision: int, buckets: bytes, start: bytes, end: bytes | None) -> Chunk:
        return await self._chunk(lambda: self._source.fingerprints(revision, buckets, start, end), start)
