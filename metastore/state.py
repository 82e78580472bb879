"""The replicated numbers of the store: loaded once, kept in memory, written at the end of every batch.

META holds them in four records, so that what a refused request may change (index, clock) is apart from what it
may not change, and the lineage, which hardly ever changes, is apart from all.
"""

from __future__ import annotations

from struct import Struct

from palisade.base.digest import DIGEST_BYTES
from palisade.metastore.lineage import LINEAGE_KEY, Lineage, decode_lineage, encode_lineage
from palisade.metastore.ordered_map import APPLIED_KEY, OrderedMap, Table, decode_applied, pack_applied

CLOCK_KEY = b"clock"
STATE_KEY = b"state"

CLOCK = Struct(">QQ")
STATE = Struct(">Qqq16sQQQQQ?")

FIRST_REVISION = 1
"""Of an empty store, as in etcd: the first write gets revision 2."""
NEVER_COMPACTED = -1


class StoreState:
    """Read by everybody, changed by `apply` only.

    `compacted` is MM, or -1 while nothing was ever compacted. `wanted` is where MM shall go as soon as no pin
    holds it. `garbage` is the cost of all versions superseded so far; `freed` is that part of it that MM has
    passed. `size` is the logical size that the quota counts (M8). `lineage` is replaced as a whole.
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
