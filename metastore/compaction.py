"""Compaction: MM moves at once, what it left behind goes bit by bit (M6).

Compact(r) makes r the minimal revision in the instant in which it is applied: reads and watches below r are refused
from then on, on every replica, and the logical size falls by what no revision from r on needs. The bytes are removed
later, in bounded slices, and nobody can tell how far that has come: look-ups do not depend on it (`mvcc.py`).

Readable from MM on, so never removed: the newest version of a key at or below MM while it lives, every version
after it, and every event from MM on (a watch may start at MM). Removed: versions superseded at or below MM, and
tombstones below MM.

A pin holds MM back for a bounded time of the replicated clock. A compaction that meets one goes as far as the pin
allows; the rest is remembered and proposed again by the leader.
"""

from __future__ import annotations

from struct import Struct

from metastore.errors import FutureRevision, InvalidRequest, TooManyPins
from metastore.limits import Limits, Retention
from metastore.mvcc import compacted, record_at
from metastore.ordered_map import OrderedMap, Table
from metastore.record import (
    DELETE,
    HEADER,
    HEADER_BYTES,
    NO_DIGEST,
    PIN_END,
    PIN_PREFIX,
    POINTER,
    POINTER_BYTES,
    REVISION,
    Trailer,
    is_only_event,
    key_hash,
    unpack_trailer,
)
from metastore.state import FIRST_REVISION, State

COLLECTED_KEY = b"collected"
PIN = Struct(">QQQ")


class Compactor:
    """Pins by their id: (revision, deadline in ms, start in ms), all of the replicated clock."""

    __slots__ = ("_cursor", "_limits", "_pins", "_state", "_tables")

    def __init__(self, tables: OrderedMap, state: State, limits: Limits) -> None:
        self._tables = tables
        self._state = state
        self._limits = limits
        self._pins: dict[str, tuple[int, int, int]] = {}
        self._cursor = b""
        self.load()

    def load(self) -> None:
        self._cursor = self._tables.get(Table.META, COLLECTED_KEY) or POINTER.pack(FIRST_REVISION, 0)
        self._pins = {
            key[len(PIN_PREFIX) :].decode(): PIN.unpack(value)
            for key, value in self._tables.scan(Table.META, PIN_PREFIX, PIN_END)
        }

    def trailer(self, revision: int) -> Trailer | None:
        """Of a retained revision (MM to LM). None for the first one, which has no events, and for others."""
        if not max(FIRST_REVISION + 1, self._state.compacted) <= revision <= self._state.revision:
            return None
        return unpack_trailer(record_at(self._tables, POINTER.pack(revision, 0)))

    def compact(self, revision: int) -> None:
        """Raises Compacted and FutureRevision, as etcd does."""
        state = self._state
        if revision <= state.compacted:
            raise compacted(revision, state.minimal_revision)
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
        before, at = self.trailer(target - 1), self.trailer(target)
        garbage = at.garbage if at else 0
        state.base_chain = before.chain if before else NO_DIGEST
        self._set_cursor(min(self._cursor, POINTER.pack(max(FIRST_REVISION, state.compacted), 0)))
        state.compacted = target
        state.size -= garbage - state.freed
        state.freed = garbage

    def pin(self, name: str, revision: int, ttl_ms: int) -> int:
        """The milliseconds that the pin lives. Raises Compacted, FutureRevision, InvalidRequest, TooManyPins.

        While a compaction waits, pins that have ended are kept in mind: none begins a second life before it.
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

    def _live_pins(self, clock_ms: int | None = None) -> dict[str, tuple[int, int, int]]:
        now = self._state.clock_ms if clock_ms is None else clock_ms
        return {name: pin for name, pin in self._pins.items() if pin[1] > now}

    def _drop_old_pins(self) -> None:
        live = self._live_pins()
        for name in [name for name in self._pins if name not in live]:
            self.unpin(name)

    def due(self, clock_ms: int, retention: Retention) -> int | None:
        """Where the leader should move MM now; None where it is not worth it or pins hold it."""
        state = self._state
        target = max(state.wanted, self._retention_target(clock_ms, retention))
        target = min([target, *(pinned for pinned, _, _ in self._live_pins(clock_ms).values())])
        return target if target > state.minimal_revision else None

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
        """When it was written; for one that is not there yet: later than any time."""
        trailer = self.trailer(revision)
        return trailer.clock_ms if trailer else 1 << 63

    def _last_before(self, clock_ms: int) -> int:
        """The newest revision that is not younger than `clock_ms`."""
        low, high = self._state.minimal_revision, self._state.revision
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._clock_of(middle) <= clock_ms else (low, middle - 1)
        return low

    @property
    def pending(self) -> bool:
        """Whether something may wait for its physical removal."""
        return self._cursor < self._end()

    def collect(self, events_max: int) -> int:
        """Look at no more than so many events and remove what no retained revision needs. How many it looked at.

        The superseded versions of MM itself go too, but its tombstones stay for the watchers: so the cursor ends
        just behind its last event and, when MM moves on, comes back to its first. Before the cursor everything is
        collected, behind it nothing is: so the events of a revision are found one by one, without a scan.
        """
        revision, sub = POINTER.unpack(self._cursor)
        get, compacted, looked_at = self._tables.get, self._state.compacted, 0
        while revision <= compacted and looked_at < events_max:
            pointer = POINTER.pack(revision, sub)
            record = get(Table.REVISION, pointer)
            looked_at += 1
            if record is None or self._remove_around(pointer, record):
                revision, sub = revision + 1, 0
            else:
                sub += 1
        self._set_cursor(POINTER.pack(revision, sub))
        return looked_at

    def _end(self) -> bytes:
        """Behind the last event that `collect` has to look at."""
        return POINTER.pack(max(0, self._state.compacted) + 1, 0)

    def _set_cursor(self, cursor: bytes) -> None:
        if cursor != self._cursor:
            self._cursor = cursor
            self._tables.put(Table.META, COLLECTED_KEY, cursor)

    def _remove_around(self, pointer: bytes, record: bytes) -> bool:
        """What the event has made superfluous. Whether it is known to be the only one of its revision."""
        kind, key_bytes, _, _, _, _, previous, previous_sub = HEADER.unpack_from(record)
        delete, key = self._tables.delete, record[HEADER_BYTES : HEADER_BYTES + key_bytes]
        if previous:
            superseded = POINTER.pack(previous, previous_sub)
            delete(Table.REVISION, superseded)
            delete(Table.HISTORY, key_hash(key) + superseded[: REVISION.size])
        if kind == DELETE and REVISION.unpack_from(pointer)[0] < self._state.compacted:
            delete(Table.REVISION, pointer)
            meta = self._tables.get(Table.KEY, key)
            if meta is not None and meta[:POINTER_BYTES] == pointer:
                delete(Table.KEY, key)
        return is_only_event(pointer, record)
