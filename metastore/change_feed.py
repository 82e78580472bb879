"""The source of a node's vault: whole revisions, and the state at one retained revision, key by key (R2, R4, R11).

Every method is one short slice and returns where the next one begins; the caller yields to other tasks in between.
Later writes do not change the answer for a fixed revision, because its versions are retained until MM passes it. Each
slice checks that (Compacted), and recovering nodes pin the revision that they read.

The keys of a bucket are not indexed: one pass over all keys, in key order, finds those of all requested buckets, and
eight bytes of a row rule out most keys. An index would cost every write; only case c needs the pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from zlib import crc32

from palisade.base.digest import BUCKETS, NO_DIGEST, SUM_MASK, digest_bytes, fingerprint_of, leaf_of, unpack_sums
from palisade.metastore.digest import BucketSums
from palisade.metastore.errors import Compacted, FutureRevision
from palisade.metastore.history import DatedChange, History, is_tombstone
from palisade.metastore.mvcc import compacted
from palisade.metastore.ordered_map import OrderedMap, Peeked, Table
from palisade.metastore.record import LINK_BYTES, REVISION, unpack_row
from palisade.metastore.state import FIRST_REVISION, StoreState
from palisade.vault.change import Revision
from palisade.vault.span_sums import pack_spans

ROWS_PER_SLICE = 2_000
"""About a millisecond."""
BLOCKS_PER_SLICE = 100
"""A key with a hundred later versions takes up to 65 blocks to read: 2,000 such keys take seconds."""
BYTES_PER_SLICE = 1 << 20
REVISIONS_PER_SLICE = 200
MOD = slice(LINK_BYTES, LINK_BYTES + REVISION.size)
VERSION = slice(LINK_BYTES + 2 * REVISION.size, LINK_BYTES + 3 * REVISION.size)
NO_VERSION = bytes(REVISION.size)
_first, _second, _mod_of, _version_of = itemgetter(0), itemgetter(1), itemgetter(MOD), itemgetter(VERSION)
"""Keys per slice: more at once would occupy a third of the event loop."""


class ChangeFeed:
    """Of one replica, at its applied revision. Raises Compacted and FutureRevision; never returns a partial answer."""

    __slots__ = ("_buckets", "_history", "_state", "_tables")

    def __init__(self, tables: OrderedMap, state: StoreState, history: History, buckets: BucketSums) -> None:
        self._tables, self._state, self._history, self._buckets = tables, state, history, buckets

    def changes(self, first: int, last: int, bytes_max: int) -> list[Revision]:
        """Revisions `first` to `last`, as many as exist and fit; at least one, if there is one.

        The last of them has the chain digest, which covers all earlier ones.
        """
        if first < self._state.minimal_revision:
            raise compacted(first, self._state.minimal_revision)
        found = [Revision(FIRST_REVISION, (), NO_DIGEST)] if first <= FIRST_REVISION else []
        size = 0
        for number, bodies in self._history.contents(first, min(last, self._state.revision)):
            found.append(Revision(number, bodies))
            size += sum(map(len, bodies))
            if size >= bytes_max:
                break
        if found:
            found[-1] = found[-1]._replace(chain=self.chain_at(found[-1].number) or b"")
        return found

    def chain_at(self, revision: int) -> bytes | None:
        """The chain digest after a retained revision; None for another one."""
        if revision == FIRST_REVISION == self._state.minimal_revision:
            return NO_DIGEST
        chain = self._history.chain_at(revision)
        return None if chain is None else digest_bytes(chain)

    def require(self, revision: int) -> None:
        """Raises unless the revision can be read."""
        if revision < self._state.minimal_revision:
            raise compacted(revision, self._state.minimal_revision)
        if revision > self._state.revision:
            raise FutureRevision(f"revision {revision} is a future revision: the store is at {self._state.revision}")

    def sums_at(self, revision: int) -> SumsAt:
        """The bucket digests of a retained revision, computed step by step."""
        self.require(revision)
        return SumsAt(self, revision, unpack_sums(self._buckets.packed()), self._state.revision)

    def rows(
        self, revision: int, buckets: bytes | None, newer_than: int, start: bytes, end: bytes | None
    ) -> tuple[list[bytes], bytes | None]:
        """The bodies of a slice of keys, live at `revision`, in these buckets, written after `newer_than`.

        `buckets`: 4,096 bytes, 1 for each requested bucket; None: all. Also returns where the next slice begins; None:
        the end.
        """
        newer = REVISION.pack(newer_than)
        chosen, until = self._slice(revision, buckets, newer, start, end)
        keys = list(map(_first, chosen))
        latest = self._tables.get_many(Table.KEY, keys)
        rows, cut = self._versions_at(revision, keys, latest)
        found = [row[LINK_BYTES:] for row in rows if row and row[MOD] > newer and row[VERSION] != NO_VERSION]
        return found, until if cut is None else cut

    def _versions_at(
        self, revision: int, keys: Sequence[bytes], latest: Mapping[bytes, bytes]
    ) -> tuple[Sequence[bytes], bytes | None]:
        """The rows of these keys as of `revision`, and the first key that did not fit into the slice, if any. `latest`:
        their present rows, which are the answer unless one of them is newer."""
        present = latest.values()
        if max(map(_mod_of, present), default=b"") <= REVISION.pack(revision) and (
            sum(map(len, present)) < BYTES_PER_SLICE
        ):
            return [latest[key] for key in keys if key in latest], None
        rows, size = list[bytes](), 0
        blocks_max = self._history.blocks_read + BLOCKS_PER_SLICE
        for key in keys:
            if self._history.blocks_read >= blocks_max or size >= BYTES_PER_SLICE:
                return rows, key
            if key in latest:
                rows.append(self._history.version_at(latest[key], revision))
                size += len(rows[-1])
        return rows, None

    def keys(self, revision: int, start: bytes, end: bytes | None) -> tuple[list[bytes], bytes | None]:
        """A slice of the keys live at `revision`, and where the next slice begins."""
        self.require(revision)
        rows, until = self._tables.peek(Table.KEY, start, end, ROWS_PER_SLICE)
        alive, cut = self._alive(rows, revision)
        return alive, until if cut is None else cut

    def dated_changes(self, revision: int, sub: int, last: int) -> Iterator[DatedChange]:
        """The changes from `revision`.`sub` to the end of `last`.

        Nothing may be written during the iteration. Raises Compacted, FutureRevision.
        """
        self.require(last)
        if revision < self._state.minimal_revision:
            raise compacted(revision, self._state.minimal_revision)
        return self._history.dated(revision, sub, last)

    def first_since(self, wall_ms: int) -> int:
        """The first revision written at `wall_ms` or later, by the leaders' wall clock; the next revision if there is
        none. Raises Compacted if it may have been compacted."""
        found, state = self._history.first_since(wall_ms), self._state
        if found > state.compacted or state.compacted <= FIRST_REVISION:
            return found
        raise Compacted(
            f"the first revision since the given time may have been compacted: the oldest that can still be read is "
            f"{state.minimal_revision} (MM)",
            state.minimal_revision,
        )

    def fingerprints(
        self, revision: int, buckets: bytes, start: bytes, end: bytes | None
    ) -> tuple[bytes, bytes | None]:
        """The fingerprints of a slice of keys live at `revision`, and where the next slice begins."""
        chosen, until = self._slice(revision, buckets, bytes(REVISION.size), start, end)
        alive, cut = self._alive(chosen, revision)
        return b"".join(map(fingerprint_of, alive)), until if cut is None else cut

    def spans(self, revision: int, start: bytes) -> tuple[bytes, bytes | None]:
        """The spans of a slice of keys live at `revision` (`vault/span_sums.py`), and where the next slice begins."""
        self.require(revision)
        rows, until = self._tables.peek(Table.KEY, start, None, ROWS_PER_SLICE)
        alive, cut = self._alive(rows, revision)
        until = until if cut is None else cut
        return pack_spans(alive, until), until

    def _alive(self, rows: Sequence[Peeked], revision: int) -> tuple[list[bytes], bytes | None]:
        """The keys that are live at `revision`; and the first one that did not fit into the slice, if any."""
        at, values = REVISION.pack(revision), list(map(_second, rows))
        as_it_is = self._state.revision == revision or max(map(_mod_of, values), default=at) <= at
        if as_it_is and NO_VERSION not in map(_version_of, values):
            return list(map(_first, rows)), None
        alive: list[bytes] = []
        blocks_max = self._history.blocks_read + BLOCKS_PER_SLICE
        for key, row in rows:
            if self._history.blocks_read >= blocks_max:
                return alive, key
            if row[VERSION] != NO_VERSION if row[MOD] <= at else self._was_there(key, revision):
                alive.append(key)
        return alive, None

    def _was_there(self, key: bytes, revision: int) -> bool:
        """Whether a key that was written after `revision` was live at it."""
        row = self._history.version_at(self._tables.get(Table.KEY, key) or b"", revision)
        return bool(row) and not is_tombstone(row)

    def _slice(
        self, revision: int, buckets: bytes | None, newer_than: bytes, start: bytes, end: bytes | None
    ) -> tuple[list[Peeked], bytes | None]:
        """The candidate keys and their rows as `peek` returns them.

        A key that a damaged byte rules out here is detected at the end of the snapshot: the sum of its bucket differs.
        """
        self.require(revision)
        rows, until = self._tables.peek(Table.KEY, start, end, ROWS_PER_SLICE)
        if buckets is None:
            return [row for row in rows if row[1][MOD] > newer_than], until
        return [row for row in rows if row[1][MOD] > newer_than and buckets[crc32(row[0]) & (BUCKETS - 1)]], until

    def changes_of_sums(self, first: int, last: int) -> list[tuple[bytes, int]]:
        """(key, change of its bucket's sum by each event) of retained revisions above MM."""
        return [
            (unpack_row(row).key, live_leaf(row) - live_leaf(replaced))
            for _, events in self._history.revisions(first, last)
            for row, replaced in events
        ]


def live_leaf(row: bytes) -> int:
    """The leaf of the row; 0 for a tombstone or a missing row."""
    return leaf_of(row[LINK_BYTES:]) if row and not is_tombstone(row) else 0


class SumsAt:
    """The present sums, less the changes of every later event. Call `step` until it returns True.

    Later writes are ignored.
    """

    __slots__ = ("_feed", "_last", "_next", "revision", "sums")

    def __init__(self, feed: ChangeFeed, revision: int, sums: list[int], latest_revision: int) -> None:
        self._feed, self.revision, self.sums = feed, revision, sums
        self._next, self._last = revision + 1, latest_revision

    def step(self, revisions: int = REVISIONS_PER_SLICE) -> bool:
        """Whether it is done. Raises Compacted."""
        self._feed.require(self.revision)
        last = min(self._last, self._next + revisions - 1)
        for key, added in self._feed.changes_of_sums(self._next, last):
            number = crc32(key) & (BUCKETS - 1)
            self.sums[number] = (self.sums[number] - added) & SUM_MASK
        self._next = last + 1
        return self._next > self._last
