"""Leases: time to live for keys (M5).

A lease and its deadline are replicated (LEASE), as are the keys attached to it (LEASE_KEY). The deadline is a time of
the replicated clock (`state.py`), the only clock used here. An expired lease exists until a LeaseExpire of the leader
removes it, so all replicas remove its keys in the same revision.
"""

from __future__ import annotations

from hashlib import blake2b
from heapq import heapify, heappop, heappush, heapreplace
from struct import Struct

from palisade.metastore.errors import LeaseExists, LeaseNotFound, LeaseTtlInvalid, StoreCorrupt
from palisade.metastore.limits import Limits
from palisade.metastore.ordered_map import OrderedMap, Table
from palisade.metastore.record import key_hash
from palisade.metastore.state import StoreState

LEASE_ID = Struct(">Q")
LEASE_ID_MAX = (1 << 63) - 1
LEASE_COST_BYTES = 64

_ROW = Struct(">BQQ")
_ROW_IN_MS = 2
_ROW_IN_S = Struct(">QQ")
"""Rows of store format 2: the ttl in whole seconds. A store may hold both forms; a renewal writes the current one."""


def lease_row(ttl_ms: int, deadline_ms: int) -> bytes:
    return _ROW.pack(_ROW_IN_MS, ttl_ms, deadline_ms)


def read_lease_row(row: bytes) -> tuple[int, int]:
    """(ttl in ms, deadline in ms) of a row of any format. Raises StoreCorrupt."""
    if len(row) == _ROW_IN_S.size:
        ttl_s, deadline_ms = _ROW_IN_S.unpack(row)
        return ttl_s * 1000, deadline_ms
    if len(row) != _ROW.size or row[0] != _ROW_IN_MS:
        raise StoreCorrupt(f"the row of a lease is malformed: {row[:32].hex()}. Restore a backup, or reset this node")
    _, ttl_ms, deadline_ms = _ROW.unpack(row)
    return ttl_ms, deadline_ms


class LeaseBook:
    """Every lease by id: (granted ttl in ms, deadline in ms of the replicated clock).

    The heap has one entry per lease, corrected when it reaches the top, so a keep-alive does not touch it.
    """

    __slots__ = ("_book", "_heap", "_state", "_tables")

    def __init__(self, tables: OrderedMap, state: StoreState) -> None:
        self._tables = tables
        self._state = state
        self._book: dict[int, tuple[int, int]] = {}
        self._heap: list[tuple[int, int]] = []
        self.load()

    def load(self) -> None:
        self._book.clear()
        for key, value in self._tables.scan(Table.LEASE, b"", None):
            self._book[LEASE_ID.unpack(key)[0]] = read_lease_row(value)
        self._heap = [(deadline, lease) for lease, (_, deadline) in self._book.items()]
        heapify(self._heap)

    def __len__(self) -> int:
        return len(self._book)

    def __contains__(self, lease: int) -> bool:
        return lease in self._book

    def ids(self) -> tuple[int, ...]:
        return tuple(sorted(self._book))

    def require(self, lease: int) -> tuple[int, int]:
        """(granted ttl in ms, deadline in ms). Raises LeaseNotFound."""
        found = self._book.get(lease)
        if found is None:
            raise LeaseNotFound(f"lease {lease} does not exist: it was revoked, has run out, or was never granted")
        return found

    def remaining_ms(self, lease: int) -> int:
        """The remaining time at the last applied stamp; 0 for an expired lease."""
        return max(0, self.require(lease)[1] - self._state.clock_ms)

    def check_grant(self, lease: int, ttl_ms: int, limits: Limits) -> None:
        if not limits.lease_ttl_ms_min <= ttl_ms <= limits.lease_ttl_ms_max:
            least, most = limits.lease_ttl_ms_min / 1000, limits.lease_ttl_ms_max // 1000
            raise LeaseTtlInvalid(f"a lease lives {least:g} to {most} seconds, not {ttl_ms / 1000:.12g}")
        if lease in self._book:
            raise LeaseExists(f"lease {lease} exists already: choose another id, or 0 to let the store choose")

    def choose_id(self) -> int:
        """A free id that was never chosen before, the same on every replica: the hash of a replicated count."""
        while True:
            self._state.chosen_ids += 1
            place = LEASE_ID.pack(self._state.chosen_ids)
            lease = int.from_bytes(blake2b(place, digest_size=8).digest(), "big") & LEASE_ID_MAX
            if lease and lease not in self._book:
                return lease

    def grant(self, lease: int, ttl_ms: int) -> None:
        self._store(lease, ttl_ms)
        heappush(self._heap, (self._book[lease][1], lease))
        self._state.size += LEASE_COST_BYTES

    def keep_alive(self, lease: int) -> int:
        """Restore the full ttl. Raises LeaseNotFound, also for an expired lease that is not removed yet."""
        ttl_ms, deadline = self.require(lease)
        if deadline <= self._state.clock_ms:
            raise LeaseNotFound(f"lease {lease} has run out and is being removed: grant a new one")
        self._store(lease, ttl_ms)
        return ttl_ms

    def _store(self, lease: int, ttl_ms: int) -> None:
        deadline = self._state.clock_ms + ttl_ms
        self._book[lease] = (ttl_ms, deadline)
        self._tables.put(Table.LEASE, LEASE_ID.pack(lease), lease_row(ttl_ms, deadline))

    def remove(self, lease: int) -> None:
        """Its keys must be detached first."""
        del self._book[lease]
        self._tables.delete(Table.LEASE, LEASE_ID.pack(lease))
        self._state.size -= LEASE_COST_BYTES

    def has_run_out(self, lease: int) -> bool:
        """False for a lease that does not exist."""
        found = self._book.get(lease)
        return found is not None and found[1] <= self._state.clock_ms

    def run_out(self, clock_ms: int, count_max: int) -> tuple[int, ...]:
        """At most `count_max` leases whose deadline is at or before `clock_ms`."""
        found: list[tuple[int, int]] = []
        while self._heap and self._heap[0][0] <= clock_ms and len(found) < count_max:
            noted, lease = self._heap[0]
            entry = self._book.get(lease)
            if entry is None:
                heappop(self._heap)
            elif entry[1] != noted:
                heapreplace(self._heap, (entry[1], lease))
            else:
                found.append(heappop(self._heap))
        for item in found:
            heappush(self._heap, item)
        return tuple(dict.fromkeys(lease for _, lease in found))

    def keys(self, lease: int) -> tuple[bytes, ...]:
        """The attached keys, in key order."""
        start = LEASE_ID.pack(lease)
        end = LEASE_ID.pack(lease + 1)
        return tuple(sorted(key for _, key in self._tables.scan(Table.LEASE_KEY, start, end)))

    def move(self, key: bytes, old: int, new: int) -> None:
        """A put attaches a key to its lease and detaches it from the old one; a delete only detaches it (`new` 0)."""
        if old == new:
            return
        name = key_hash(key)
        if old:
            self._tables.delete(Table.LEASE_KEY, LEASE_ID.pack(old) + name)
        if new:
            self._tables.put(Table.LEASE_KEY, LEASE_ID.pack(new) + name, key)
