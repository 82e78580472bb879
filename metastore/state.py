"""The replicated numbers of the store: loaded once, kept in memory, written at the end of every batch.

META holds them in four records. Numbers that a refused request may change (index, clock) are separate from those that
it may not change; the lineage, which rarely changes, is separate from both.

Two of the numbers are times. A stamp is [wall_ms, clock_ms]: the wall time that revisions are labelled with, and the
replicated clock that leases run on. `clock_ms` never follows wall time: a leader continues from the last stamp that was
applied, by the time elapsed on its own clock since it became leader. Time without a leader does not count, so a lease
may live longer than its time, never shorter, and its remaining time survives a change of leader (M5).
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from palisade.base.digest import DIGEST_BYTES
from palisade.base.invariant import InvariantViolated
from palisade.metastore.lineage import LINEAGE_KEY, Lineage, decode_lineage, encode_lineage
from palisade.metastore.ordered_map import APPLIED_KEY, OrderedMap, Table, decode_applied, pack_applied

CLOCK_KEY = b"clock"
STATE_KEY = b"state"

CLOCK = Struct(">QQ")
STATE = Struct(">Qqq16sQQQQQ?")

FIRST_REVISION = 1
"""Of an empty store, as in etcd: the first write gets revision 2."""
NEVER_COMPACTED = -1
TIME_MS_MAX = 1 << 63


class StoreState:
    """Read by all parts of the store, changed by `apply` only.

    `compacted` is MM, or -1 while nothing was ever compacted. `wanted` is the MM to be set once no pin
    prevents it. `garbage` is the cost of all versions superseded so far; `freed` is the part of it below MM. `size` is
    the logical size that the quota counts (M8). `lineage` is replaced as a whole.
    """

    __slots__ = (
        "_stored", "_stored_lineage", "alarm", "chain", "chosen_ids", "clock_ms", "compacted", "freed",
        "garbage", "index", "keys", "lineage", "revision", "size", "term", "wall_ms", "wanted",
    )  # fmt: skip

    index: int
    term: int
    wall_ms: int
    clock_ms: int
    revision: int
    compacted: int
    wanted: int
    chain: int
    size: int
    garbage: int
    freed: int
    keys: int
    chosen_ids: int
    alarm: bool
    lineage: Lineage

    def __init__(self, tables: OrderedMap) -> None:
        self.load(tables)

    def load(self, tables: OrderedMap) -> None:
        self.index, self.term = decode_applied(tables.get(Table.META, APPLIED_KEY))
        self.wall_ms, self.clock_ms = CLOCK.unpack(tables.get(Table.META, CLOCK_KEY) or CLOCK.pack(0, 0))
        self.revision, self.compacted, self.wanted = FIRST_REVISION, NEVER_COMPACTED, NEVER_COMPACTED
        self.chain = self.size = self.garbage = self.freed = self.keys = self.chosen_ids = 0
        self.alarm = False
        self.lineage = self._stored_lineage = decode_lineage(tables.get(Table.META, LINEAGE_KEY))
        self._stored = self._packed()
        stored = tables.get(Table.META, STATE_KEY)
        if stored is not None:
            self._unpack(stored)

    def _unpack(self, stored: bytes) -> None:
        (
            self.revision, self.compacted, self.wanted, chain,
            self.size, self.garbage, self.freed, self.keys, self.chosen_ids, self.alarm,
        ) = STATE.unpack(stored)  # fmt: skip
        self.chain = int.from_bytes(chain, "big")
        self._stored = stored

    def _packed(self) -> bytes:
        return STATE.pack(
            self.revision, self.compacted, self.wanted, self.chain.to_bytes(DIGEST_BYTES, "big"),
            self.size, self.garbage, self.freed, self.keys, self.chosen_ids, self.alarm,
        )  # fmt: skip

    @property
    def minimal_revision(self) -> int:
        """MM: the oldest revision that can still be read."""
        return max(FIRST_REVISION, self.compacted)

    def save(self, tables: OrderedMap) -> None:
        """After a batch: the clock, what else has changed, and the applied index."""
        tables.put(Table.META, CLOCK_KEY, CLOCK.pack(self.wall_ms, self.clock_ms))
        packed = self._packed()
        if packed != self._stored:
            tables.put(Table.META, STATE_KEY, packed)
            self._stored = packed
        if self.lineage is not self._stored_lineage:
            tables.put(Table.META, LINEAGE_KEY, encode_lineage(self.lineage))
            self._stored_lineage = self.lineage
        tables.put(Table.META, APPLIED_KEY, pack_applied((self.index, self.term)))

    def save_applied(self, tables: OrderedMap) -> None:
        """After an entry that changes nothing else."""
        tables.put(Table.META, APPLIED_KEY, pack_applied((self.index, self.term)))


class StampClock:
    """Creates stamps on the leader, and accepts them on every replica."""

    __slots__ = ("_base_ms", "_since", "_state")

    def __init__(self, state: StoreState) -> None:
        self._state = state
        self._base_ms: int | None = None
        self._since = 0.0

    def lead(self, now: float) -> None:
        """`now` in seconds, of the node's own monotonic clock."""
        self._base_ms = self._state.clock_ms
        self._since = now

    def clock_ms(self, now: float) -> int:
        """The lease clock for a stamp of this leader now; the last applied one on a node that never led."""
        if self._base_ms is None:
            return self._state.clock_ms
        return max(self._state.clock_ms, self._base_ms + int((now - self._since) * 1000))

    def stamp(self, now: float, wall_ms: int) -> list[int]:
        return [max(self._state.wall_ms, wall_ms), self.clock_ms(now)]

    def accept(self, stamp: Sequence[int]) -> None:
        """Neither time decreases, whatever the stamp."""
        sound = type(stamp) in (list, tuple) and [type(part) for part in stamp] == [int, int]
        if not sound or not 0 <= min(stamp) <= max(stamp) < TIME_MS_MAX:
            raise InvariantViolated(
                f"the stamp of a batch is [wall_ms, clock_ms], not {stamp!r}: the leader is not of this version"
            )
        self._state.wall_ms = max(self._state.wall_ms, stamp[0])
        self._state.clock_ms = max(self._state.clock_ms, stamp[1])
