"""A snapshot that transfers only the differences (R11): compares the 4,096 bucket digests of one pinned revision first.

For the buckets that differ, in this order, until all sums match:

1. Everything written after LV, or after the revision of an earlier attempt.
2. Deletes: now the vault has every live key, and perhaps more. The number of live keys in a span of 32, and the sum of
   their hashes, identify one or two deleted keys (`vault/span_sums.py`). More of them are found by four bytes for each
   live key.
3. Whole buckets: for a vault whose content differs from its record, or after a hash collision.

Changing 1 % of the keys touches most buckets, so fetching whole buckets alone would fetch nearly everything. The proof
of the result is the same in any case: LV moves only when all sums equal the cluster's. Every chunk is a commit of its
own, and after a crash the transfer continues from the committed chunks (`vault/incoming_difference.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from palisade.base.digest import bitmap_of, bucket_of, fingerprint_of, members_of
from palisade.recovery.chunks import unpack_fingerprints, unpack_rows, unpack_spans
from palisade.recovery.errors import DifferenceFailed
from palisade.recovery.ports import Chunk, ClusterSource, ClusterSums, RecoveryTime
from palisade.recovery.report import Counts, RecoveryPhase, RecoveryRecorder
from palisade.vault.change import key_of
from palisade.vault.incoming_difference import Incoming
from palisade.vault.span_sums import last_in, surplus
from palisade.vault.vault import Vault

KEYS_PER_TURN = 4_000
"""How many of its own keys a node reads before it yields to other tasks."""
SPANS_PER_TURN = 1_000
STRETCHES_MAX = 16
"""Up to this many ranges with unidentified deletes are requested one by one; for more, one request for all is faster.
Measured with 100,000 keys."""

Stretch = tuple[bytes, bytes | None]
"""From this key up to that one; None: to the last key."""


class DifferenceFetch:
    """`hold` is awaited between chunks: it keeps the pin. `notify`: keep the changes for running listeners."""

    def __init__(
        self,
        vault: Vault,
        source: ClusterSource,
        clock: RecoveryTime,
        recorder: RecoveryRecorder,
        hold: Callable[[], Awaitable[None]],
    ) -> None:
        self._vault, self._source, self._clock, self._recorder, self._hold = vault, source, clock, recorder, hold
        self._fetched = self._evicted = self._expected = 0

    async def run(self, target: int, keys: int, *, notify: bool) -> None:
        """`keys`: the cluster's number of keys, for display. Raises SourceCompacted, ChunkDamaged, DifferenceFailed."""
        theirs = await self._source.sums(target)
        missed = target - self._vault.revision
        self._expected = min(keys, missed) if self._vault.key_count else keys
        incoming = Incoming(self._vault, target, notify=notify)
        wrong = incoming.differing(theirs.sums)
        self._recorder.add(buckets_differing=len(wrong))
        try:
            for fetch in (self._newer, self._gone, self._whole):
                if wrong:
                    await fetch(incoming, bitmap_of(wrong))
                    wrong = incoming.differing(theirs.sums)
            if wrong:
                raise _failed(theirs, wrong)
            incoming.finish(theirs.chain, theirs.sums)
        finally:
            self._recorder.add_counts("keys", Counts(self._kept()))

    async def _newer(self, incoming: Incoming, buckets: bytes) -> None:
        target = incoming.mark.target
        while (stretch := incoming.mark.next_stretch()) is not None:
            start, end, known = stretch
            await self._hold()
            chunk = await self._source.rows(target, buckets, known, start, end)
            until = end if chunk.until is None else chunk.until
            self._count(incoming.put(unpack_rows(chunk.payload), start, until), 0)

    async def _gone(self, incoming: Incoming, buckets: bytes) -> None:
        start: bytes | None = b""
        while start is not None:
            await self._hold()
            chunk = await self._source.spans(incoming.mark.target, start)
            gone, unclear = await self._compared(start, chunk)
            self._drop(incoming, gone)
            for stretch in unclear:
                await self._gone_between(incoming, buckets, *stretch)
            start = chunk.until

    async def _compared(self, start: bytes, chunk: Chunk) -> tuple[list[bytes], list[Stretch]]:
        """Which keys of the vault are deleted, and the ranges where that cannot be determined."""
        own = await self._own_keys(start, chunk.until)
        gone: list[bytes] = []
        unclear: list[Stretch] = []
        first, begin = 0, start
        for number, span in enumerate(unpack_spans(chunk.payload)):
            last = last_in(own, first, span)
            if last - first != span.keys:
                found = surplus(own[first:last], span)
                gone += found or ()
                if found is None:
                    unclear.append((begin, span.end or None))
            first, begin = last, span.end
            if not number % SPANS_PER_TURN:
                await self._clock.sleep(0)
        return gone, unclear if len(unclear) <= STRETCHES_MAX else [(unclear[0][0], unclear[-1][1])]

    async def _own_keys(self, start: bytes, until: bytes | None) -> list[bytes]:
        """The vault's own keys, in order. Nothing changes them meanwhile."""
        found: list[bytes] = []
        for page in self._vault.key_pages(start, until, KEYS_PER_TURN):
            found += page
            await self._clock.sleep(0)
        found.sort()
        return found

    async def _gone_between(self, incoming: Incoming, buckets: bytes, start: bytes, end: bytes | None) -> None:
        at: bytes | None = start
        while at is not None:
            await self._hold()
            chunk = await self._source.fingerprints(incoming.mark.target, buckets, at, end)
            alive = unpack_fingerprints(chunk.payload)
            ours = await self._own_keys_in(buckets, at, end if chunk.until is None else chunk.until)
            self._drop(incoming, [key for key in ours if fingerprint_of(key) not in alive])
            at = chunk.until

    def _drop(self, incoming: Incoming, gone: list[bytes]) -> None:
        if gone:
            self._count(0, incoming.repair((), gone))

    async def _whole(self, incoming: Incoming, buckets: bytes) -> None:
        start: bytes | None = b""
        while start is not None:
            await self._hold()
            chunk = await self._source.rows(incoming.mark.target, buckets, 0, start, None)
            rows = unpack_rows(chunk.payload)
            theirs = {key_of(row) for row in rows}
            gone = [key for key in await self._own_keys_in(buckets, start, chunk.until) if key not in theirs]
            changed = incoming.repair(rows, gone)
            self._count(changed - len(gone), len(gone))
            start = chunk.until

    async def _own_keys_in(self, buckets: bytes, start: bytes, until: bytes | None) -> list[bytes]:
        """The vault's own keys in these buckets."""
        members = members_of(buckets)
        return [key for key in await self._own_keys(start, until) if members[bucket_of(key)]]

    def _count(self, fetched: int, evicted: int) -> None:
        self._fetched += fetched
        self._evicted += evicted
        self._recorder.add_counts("keys", Counts(self._kept(), evicted, fetched))
        done = self._fetched + self._evicted
        self._recorder.step(RecoveryPhase.SNAPSHOT, done, max(done, self._expected), "keys")

    def _kept(self) -> int:
        return max(0, self._vault.key_count - self._fetched)


def _failed(theirs: ClusterSums, wrong: tuple[int, ...]) -> DifferenceFailed:
    return DifferenceFailed(
        f"{len(wrong)} bucket sums, first {wrong[0]}, differ at revision {theirs.revision} after everything was "
        "fetched: the member that sent it is damaged or inconsistent. Compare its digests with those of the other "
        "members (GET /v1/digest), and start this node again; what was received is kept"
    )
