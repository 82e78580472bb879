"""What a node's vault is fed from: whole revisions, and the state at one retained revision, key by key (R2, R4, R11).

Every method is one short slice, which says where the next one begins: the caller lets others have a turn in between.
What is written meanwhile changes nothing in an answer for a fixed revision, because its versions stay until MM passes
it; each slice looks whether that has happened (Compacted), and recovering nodes pin what they read.

The keys of a bucket are not indexed: one pass over the keys finds those of all buckets that are asked for, in the order
of the keys, and most are ruled out by eight bytes of their meta. An index would cost every write; a pass is needed in
case c only.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from zlib import crc32

from metastore.digest import BUCKETS, SUM_MASK, BucketSums
from metastore.errors import FutureRevision
from metastore.mvcc import compacted, latest, record_at, version_at
from metastore.ordered_map import OrderedMap, Table
from metastore.record import (
    DELETE,
    DIGEST_BYTES,
    NO_DIGEST,
    POINTER,
    REVISION,
    TRAILER,
    body_size,
    key_of,
    leaf_of,
    unpack_record,
)
from metastore.state import FIRST_REVISION, State
from vault.change import Revision, Row
from vault.digest import fingerprint_of, unpack_sums

ROWS_PER_SLICE = 1_000
"""About a millisecond."""


class Feed:
    """Of one replica, at what it has applied. Raises Compacted and FutureRevision, and never answers in part."""

    __slots__ = ("_buckets", "_state", "_tables")

    def __init__(self, tables: OrderedMap, state: State, buckets: BucketSums) -> None:
        self._tables, self._state, self._buckets = tables, state, buckets

    def changes(self, first: int, last: int, bytes_max: int) -> list[Revision]:
        """Revisions `first` to `last`, as many as there are and fit; at least one, if there is one."""
        if first < self._state.minimal_revision:
            raise compacted(first, self._state.minimal_revision)
        found, size = [], 0
        for number in range(first, min(last, self._state.revision) + 1):
            revision = self.revision(number)
            found.append(revision)
            size += sum([len(body) for body in revision.bodies])
            if size >= bytes_max:
                break
        return found

    def revision(self, number: int) -> Revision:
        """One that is retained, whole."""
        if number == FIRST_REVISION:
            return Revision(number, b"", (), NO_DIGEST)
        first = record_at(self._tables, POINTER.pack(number, 0))
        size = body_size(first)
        trailer = first[size:]
        bodies = [first[:size]]
        for sub in range(1, int.from_bytes(trailer[-4:], "big")):
            bodies.append(record_at(self._tables, POINTER.pack(number, sub)))
        return Revision(number, trailer[DIGEST_BYTES : TRAILER.size], bodies, trailer[:DIGEST_BYTES])

    def chain_at(self, revision: int) -> bytes | None:
        """After a retained revision; None for another one."""
        if revision == self._state.revision:
            return self._state.chain
        if not max(FIRST_REVISION + 1, self._state.compacted) <= revision <= self._state.revision:
            return None
        record = record_at(self._tables, POINTER.pack(revision, 0))
        size = body_size(record)
        return record[size : size + DIGEST_BYTES]

    def require(self, revision: int) -> None:
        """That it can be read."""
        if revision < self._state.minimal_revision:
            raise compacted(revision, self._state.minimal_revision)
        if revision > self._state.revision:
            raise FutureRevision(f"revision {revision} is a future revision: the store is at {self._state.revision}")

    def sums_at(self, revision: int) -> SumsAt:
        """The bucket digests of a retained revision, in the making."""
        self.require(revision)
        return SumsAt(self, revision, unpack_sums(self._buckets.packed()), self._state.revision)

    def rows(
        self, revision: int, buckets: bytes, newer_than: int, start: bytes, end: bytes | None
    ) -> tuple[list[Row], bytes | None]:
        """The versions of a slice of keys, live at `revision`, of these buckets, written after `newer_than`.

        `buckets`: 4,096 bytes, 1 for those that are asked for. And where the next slice begins; None: that was all.
        """
        found = []
        keys, until = self._slice(revision, buckets, REVISION.pack(newer_than), start, end)
        for key, meta in keys:
            version = latest(key, meta) if meta[: REVISION.size] <= REVISION.pack(revision) else None
            if version is None:
                version = version_at(self._tables, key, meta, revision)
            if version is not None and version.mod_revision > newer_than:
                record = record_at(self._tables, version.pointer)
                found.append(Row(version.pointer, record[: body_size(record)]))
        return found, until

    def fingerprints(self, revision: int, buckets: bytes, start: bytes) -> tuple[bytes, bytes | None]:
        """Of the keys of a slice that are live at `revision`, and where the next slice begins."""
        keys, until = self._slice(revision, buckets, bytes(REVISION.size), start, None)
        alive = [key for key, meta in keys if version_at(self._tables, key, meta, revision) is not None]
        return b"".join(map(fingerprint_of, alive)), until

    def _slice(
        self, revision: int, buckets: bytes, newer_than: bytes, start: bytes, end: bytes | None
    ) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        self.require(revision)
        rows = list(islice(self._tables.scan(Table.KEY, start, end), ROWS_PER_SLICE))
        wanted = [(key, meta) for key, meta in rows if meta[:8] > newer_than and buckets[crc32(key) & (BUCKETS - 1)]]
        return wanted, rows[-1][0] + b"\0" if len(rows) == ROWS_PER_SLICE else None

    def leaves_of(self, revision: int) -> list[tuple[bytes, bytes, bytes]]:
        """(key, leaf of the version it replaced, its own leaf) of each event of a revision above MM."""
        return [self._leaves(revision, sub, body) for sub, body in enumerate(self.revision(revision).bodies)]

    def _leaves(self, revision: int, sub: int, body: bytes) -> tuple[bytes, bytes, bytes]:
        own = NO_DIGEST if body[0] == DELETE else leaf_of(POINTER.pack(revision, sub), body)
        previous = unpack_record(body).previous
        return key_of(body), self._leaf_at(previous) if previous else NO_DIGEST, own

    def _leaf_at(self, pointer: bytes) -> bytes:
        record = record_at(self._tables, pointer)
        return leaf_of(pointer, record[: body_size(record)])


class SumsAt:
    """The sums of now, less what every event since has added. Call `step` until it says that it is done.

    The order of the events does not matter, and what is written meanwhile is not looked at.
    """

    __slots__ = ("_feed", "_next", "revision", "sums")

    def __init__(self, feed: Feed, revision: int, sums: list[int], latest_revision: int) -> None:
        self._feed, self.revision, self.sums, self._next = feed, revision, sums, latest_revision

    def step(self, revisions: int = 200) -> bool:
        """Whether it is done. Raises Compacted."""
        self._feed.require(self.revision)
        for _ in range(revisions):
            if self._next <= self.revision:
                return True
            self._take_back(self._feed.leaves_of(self._next))
            self._next -= 1
        return self._next <= self.revision

    def _take_back(self, leaves: Sequence[tuple[bytes, bytes, bytes]]) -> None:
        for key, before, after in leaves:
            number = crc32(key) & (BUCKETS - 1)
            change = int.from_bytes(before, "big") - int.from_bytes(after, "big")
            self.sums[number] = (self.sums[number] + change) & SUM_MASK
