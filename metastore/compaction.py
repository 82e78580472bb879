"""Compaction: MM moves at once, the bytes are removed later (M6).

Applying Compact(r) makes r the minimal revision: from then on every replica refuses reads and watches below r, and
the logical size falls by everything that no revision from r on needs. The bytes are removed later, in bounded slices.
The progress is invisible: look-ups do not depend on it (`mvcc.py`).

Removed are blocks with only events below MM, and the tombstones that they wrote. Every event from MM on stays, because
a watch may start at MM; each keeps the row that it replaced, which a read at MM may need.

A pin holds MM back for a bounded time of the replicated clock. A compaction limited by a pin goes as far as the pin
allows; the rest is stored and proposed again by the leader. Watermarks of archives (`watermarks.py`) hold back what the
leader proposes by itself.
"""

from __future__ import annotations

from itertools import islice
from struct import Struct

from palisade.metastore.errors import Compacted, FutureRevision, InvalidRequest, TooManyPins
from palisade.metastore.history import History, is_tombstone, mod_of, open_block
from palisade.metastore.limits import Limits, Retention
from palisade.metastore.mvcc import compacted
from palisade.metastore.ordered_map import OrderedMap, Table
from palisade.metastore.record import PIN_END, PIN_PREFIX, POINTER, unpack_row
from palisade.metastore.state import StoreState
from palisade.metastore.watermarks import HOLD_PERCENT, held, lowest_watermark

PIN = Struct(">QQQ")
NEVER_MS = 1 << 63


class Compactor:
    """Pins by id: (revision, deadline in ms, start in ms), all of the replicated clock."""

    __slots__ = ("_clear_to", "_cursor", "_history", "_limits", "_pins", "_state", "_tables")

    def __init__(self, tables: OrderedMap, state: StoreState, history: History, limits: Limits) -> None:
        self._tables = tables
        self._state = state
        self._history = history
        self._limits = limits
        self._pins: dict[str, tuple[int, int, int]] = {}
        self.load()

    def load(self) -> None:
        self._cursor = b""
        self._clear_to = 0
        self._pins = {
            key[len(PIN_PREFIX) :].decode(): PIN.unpack(value)
            for key, value in self._tables.scan(Table.META, PIN_PREFIX, PIN_END)
        }

    def compact(self, revision: int) -> None:
        """Raises Compacted and FutureRevision, as etcd does."""
        state = self._state
        if revision <= state.compacted:
            raise Compacted(
                f"the history before revision {revision} is already removed: the oldest revision that can still be "
                f"read is {state.minimal_revision} (MM)",
                state.minimal_revision,
            )
        if revision > state.revision:
            raise FutureRevision(
                f"revision {revision} is a future revision and can't be compacted: the store is at {state.revision}"
            )
        self._drop_old_pins()
        state.wanted = max(state.wanted, revision)
        target = min([revision, *(pinned for pinned, _, _ in self._pins.values())])
        if target > state.compacted:
            self._advance(target)

    def _advance(self, target: int) -> None:
        state = self._state
        garbage = self._history.garbage_at(target)
        state.compacted = target
        state.size -= garbage - state.freed
        state.freed = garbage

    def pin(self, name: str, revision: int, ttl_ms: int) -> int:
        """The remaining milliseconds of the pin. Raises Compacted, FutureRevision, InvalidRequest, TooManyPins.

        While a compaction waits, expired pins are remembered: none can be taken a second time before the compaction.
        """
        state, limits = self._state, self._limits
        if revision < state.minimal_revision:
            raise compacted(revision, state.minimal_revision)
        if revision > state.revision:
            raise FutureRevision(f"revision {revision} is a future revision: the store is at {state.revision}")
        waits = state.wanted > state.compacted
        known = self._pins if waits else self._live_pins()
        start = known.get(name, (0, 0, state.clock_ms))[2]
        ends = min(state.clock_ms + ttl_ms, start + limits.pin_life_ms_max)
        if ends <= state.clock_ms:
            raise InvalidRequest(f"the pin {name!r} has lived {limits.pin_life_ms_max} ms, the longest that one may")
        if name not in known and len(known) >= limits.pins_max:
            raise TooManyPins(f"{limits.pins_max} pins hold MM already: wait until one of them ends")
        if not waits:
            self._drop_old_pins()
        self._pins[name] = (revision, ends, start)
        self._tables.put(Table.META, PIN_PREFIX + name.encode(), PIN.pack(revision, ends, start))
        return ends - state.clock_ms

    def unpin(self, name: str) -> None:
        if self._pins.pop(name, None) is not None:
            self._tables.delete(Table.META, PIN_PREFIX + name.encode())

    def live_pins(self, prefix: str) -> tuple[str, ...]:
        return tuple(name for name in self._live_pins() if name.startswith(prefix))

    def _live_pins(self, clock_ms: int | None = None) -> dict[str, tuple[int, int, int]]:
        now = self._state.clock_ms if clock_ms is None else clock_ms
        return {name: pin for name, pin in self._pins.items() if pin[1] > now}

    def _drop_old_pins(self) -> None:
        live = self._live_pins()
        for name in [name for name in self._pins if name not in live]:
            self.unpin(name)

    def due(self, clock_ms: int, retention: Retention) -> int | None:
        """The target to which the leader should move MM now; None if it is not worthwhile or pins prevent it."""
        state = self._state
        target = max(state.wanted, self._held_target(self._retention_target(clock_ms, retention), retention))
        target = min([target, *(pinned for pinned, _, _ in self._live_pins(clock_ms).values())])
        return target if target > state.minimal_revision else None

    def _held_target(self, target: int, retention: Retention) -> int:
        """What watermarks leave of the target of retention."""
        state, oldest = self._state, self._state.minimal_revision
        if target <= oldest or state.size * 100 >= self._limits.quota_bytes * HOLD_PERCENT:
            return target
        floor = state.revision - retention.history_revisions - retention.hold_revisions
        watermark = lowest_watermark(self._tables, state.lineage)
        return held(target, oldest, floor, retention.compaction_step_revisions, watermark)

    def _retention_target(self, clock_ms: int, retention: Retention) -> int:
        state, step = self._state, retention.compaction_step_revisions
        oldest = state.minimal_revision
        by_count = state.revision - retention.history_revisions
        target = by_count if by_count - oldest >= step else oldest
        old = clock_ms - retention.history_age_ms
        if self._clock_of(oldest + 1) > old:
            return target
        by_age = self._last_before(old)
        ripe = self._clock_of(oldest + 1) <= old - retention.history_age_ms // 10
        return max(target, by_age) if ripe or by_age - oldest >= step else target

    def _clock_of(self, revision: int) -> int:
        """When the revision was written; infinitely late for a future revision."""
        clock_ms = self._history.clock_ms_at(revision)
        return NEVER_MS if clock_ms is None else clock_ms

    def _last_before(self, clock_ms: int) -> int:
        """The newest revision that was written at or before `clock_ms`."""
        low, high = self._state.minimal_revision, self._state.revision
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._clock_of(middle) <= clock_ms else (low, middle - 1)
        return low

    @property
    def pending(self) -> bool:
        """Whether physical removal may be pending."""
        return self._clear_to < self._state.compacted

    def collect(self, blocks_max: int) -> int:
        """Remove at most `blocks_max` blocks that no retained revision needs. Returns how many were removed.

        Blocks are removed in order, so the first block that must stay ends the slice.
        """
        found = 0
        for pointer, packed in self._first_blocks(blocks_max):
            last, _ = POINTER.unpack(pointer)
            if last >= self._state.compacted:
                self._clear_to = last
                return found
            self._remove_tombstones(packed)
            self._tables.delete(Table.REVISION, pointer)
            self._cursor = pointer
            found += 1
        if found < blocks_max:
            self._clear_to = self._state.compacted
        return found

    def _first_blocks(self, blocks_max: int) -> list[tuple[bytes, bytes]]:
        """Starts where the last removal stopped, to skip removed blocks quickly."""
        return list(islice(self._tables.scan(Table.REVISION, self._cursor, None), blocks_max))

    def _remove_tombstones(self, packed: bytes) -> None:
        block = open_block(packed)
        if not block.deletes:
            return
        for row, _ in block.events():
            if is_tombstone(row):
                key = unpack_row(row).key
                latest = self._tables.get(Table.KEY, key)
                if latest is not None and mod_of(latest) == mod_of(row):
                    self._tables.delete(Table.KEY, key)
