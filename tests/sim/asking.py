"""Requests of clients over any path: few keys, so that they conflict, and values that only one request writes.

Keys are in a strict region, or not; `owned` ones are attached to leases, and only their owner writes them. Compares use
the values that clients got last, so that about as many hold as fail.

A transaction reads all compared keys in the branch that it takes, before it writes there: a result that depends on
values without showing them is expensive to judge (`checkers/linearizable.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from random import Random

from palisade.metastore.requests import (
    Compare,
    CompareResult,
    CompareTarget,
    DeleteRange,
    Put,
    Range,
    SortOrder,
    SortTarget,
    Txn,
)
from palisade.metastore.results import KeyValue, RangeResult
from tests.sim.kv_spans import rows_of
from tests.sim.seen import Ok, Outcome, Request

STRICT = (b"s/a", b"s/b", b"s/c")
EVENTUAL = (b"q/a", b"q/b")
OWNED = (b"q/owner", b"s/owner")
EVERYTHING = (b"q", b"t")
PAST = 30
"""About how many revisions in the past clients read."""

Span = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys in use. `spans`: deleted and compared as one, all keys of a span being `strict`, or all `eventual`.
    `ranges`: read as one; `partial`: those of which a part may be read, since no other client writes in them."""

    strict: tuple[bytes, ...]
    eventual: tuple[bytes, ...]
    owned: tuple[bytes, ...]
    spans: tuple[Span, ...]
    ranges: tuple[Span, ...]
    partial: tuple[Span, ...]

    @property
    def free(self) -> tuple[bytes, ...]:
        return self.strict + self.eventual


KEYS = Keys(STRICT, EVENTUAL, OWNED, ((b"s/a", b"s/d"), (b"q/a", b"q/c")), (EVERYTHING,), (EVERYTHING,))


class Asking:
    """For all clients of one world: values are counted. `newest`: the newest revision known. `keys`: of each round,
    which ends after so many requests."""

    def __init__(
        self,
        chance: Random,
        newest: Callable[[], int],
        keys: Callable[[int], Keys] = lambda _round: KEYS,
        round_requests: float = inf,
    ) -> None:
        self._chance, self._newest, self._keys_of, self._round_requests = chance, newest, keys, round_requests
        self._values = self._asked = self._rounds = 0
        self._begin_round()
        self._makes: tuple[tuple[float, Callable[[], Put | DeleteRange | Txn | Range]], ...] = (
            (0.38, self.put),
            (0.48, self.delete),
            (0.68, self.transaction),
            (0.90, self.read),
            (0.95, self.local),
            (1.00, self.past),
        )

    def _begin_round(self) -> None:
        self.keys = self._keys_of(self._rounds)
        self._rows = {key: absent(key) for key in self.keys.free + self.keys.owned}
        """The last result for each key, the latest at the end."""

    def count(self) -> None:
        """One more request follows."""
        self._asked += 1
        if self._asked >= (self._rounds + 1) * self._round_requests:
            self._rounds += 1
            self._begin_round()

    def anything(self) -> Put | DeleteRange | Txn | Range:
        self.count()
        lot = self._chance.random()
        return next(make for bound, make in self._makes if lot < bound)()

    def observe(self, request: Request, outcome: Outcome) -> None:
        """A result that a client got."""
        if not isinstance(outcome, Ok) or (isinstance(request, Range) and request.keys_only):
            return
        rows = list(rows_of(outcome.result))
        if isinstance(outcome.result, RangeResult) and not rows and isinstance(request, Range):
            rows = [absent(request.key)]
        for row in rows:
            if self._rows.pop(row.key, None) is not None:
                self._rows[row.key] = row

    def value(self) -> bytes:
        self._values += 1
        return b"%d" % self._values

    def _key(self) -> bytes:
        return self._chance.choice(self.keys.free)

    def _one_of(self, spans: tuple[Span, ...]) -> Span:
        return spans[0] if len(spans) == 1 else self._chance.choice(spans)

    # Writes

    def put(self) -> Put:
        return Put(self._key(), self.value(), prev_kv=self._chance.random() < 0.3)

    def delete(self) -> DeleteRange:
        if self._chance.random() < 0.1:
            return DeleteRange(*self._chance.choice(self.keys.spans), prev_kv=True)
        return DeleteRange(self._key(), prev_kv=True)

    def transaction(self) -> Txn:
        lot = self._chance.random()
        if lot < 0.25:
            return self._first(self._key())
        if lot < 0.45:
            return self._both()
        return self._swap() if lot < 0.7 else self._mixed()

    def _first(self, key: bytes) -> Txn:
        """Becomes the owner of an unowned key."""
        nobody = Compare(key, CompareTarget.VERSION, CompareResult.EQUAL, 0)
        return Txn((nobody,), (Put(key, self.value()),), (Range(key),))

    def _both(self) -> Txn:
        """Changes two keys at once."""
        one, other = self._chance.sample(self.keys.free, 2)
        value = self.value()
        return Txn(success=(Put(one, value), Put(other, value)))

    def _swap(self) -> Txn:
        """Changes a key if it has the value that was read."""
        seen = [row for row in self._rows.values() if row.key in self.keys.free]
        row = seen[-1] if self._chance.random() < 0.7 else self._chance.choice(seen)
        same = Compare(row.key, CompareTarget.MOD, CompareResult.EQUAL, row.mod_revision)
        if row.version and self._chance.random() < 0.4:
            same = Compare(row.key, CompareTarget.VALUE, CompareResult.EQUAL, row.value)
        write = DeleteRange(row.key, prev_kv=True) if self._chance.random() < 0.15 else Put(row.key, self.value())
        return Txn((same,), (write,), (Range(row.key),))

    def _mixed(self) -> Txn:
        """Any compares, and another kind of write in each branch."""
        compares = tuple(self._compare() for _ in range(1 if self._chance.random() < 0.7 else 2))
        shown = tuple(dict.fromkeys(Range(each.key, each.range_end) for each in compares))
        success, failure = self._write(), self._write()
        return Txn(compares, (*shown, success), (*shown, *self._nested(failure)))

    def _write(self) -> Put | DeleteRange:
        lot, key = self._chance.random(), self._key()
        if lot < 0.15:
            return DeleteRange(key, prev_kv=True)
        if lot < 0.2:
            return DeleteRange(*self._chance.choice(self.keys.spans), prev_kv=True)
        if lot < 0.3:
            return Put(key, prev_kv=True, ignore_value=True)
        return Put(key, self.value(), ignore_lease=lot < 0.4)

    def _nested(self, write: Put | DeleteRange) -> tuple[Range | Put | DeleteRange | Txn, ...]:
        """The write, or half the time a transaction of its own, with a compare of the same key."""
        if write.key not in self.keys.free or self._chance.random() < 0.5:
            return (write,)
        compare = self._compare_of(write.key)
        return Range(write.key), Txn((compare,), (write,), (Range(write.key),))

    def _compare(self) -> Compare:
        """Of one key, or of all in a range."""
        compare = self._compare_of(self._chance.choice(self.keys.free + self.keys.owned))
        if self._chance.random() < 0.8:
            return compare
        start, end = self._chance.choice(self.keys.spans)
        return Compare(start, compare.target, compare.result, compare.operand, end)

    def _compare_of(self, key: bytes) -> Compare:
        row, target = self._rows[key], self._chance.choice(tuple(CompareTarget))
        result = self._chance.choice(tuple(CompareResult))
        if target is CompareTarget.VALUE:
            return Compare(key, target, result, row.value)
        number = {
            CompareTarget.VERSION: row.version,
            CompareTarget.CREATE: row.create_revision,
            CompareTarget.MOD: row.mod_revision,
            CompareTarget.LEASE: self._chance.choice((0, row.lease)),
        }[target]
        return Compare(key, target, result, max(0, number + self._chance.choice((-1, 0, 0, 1))))

    # Reads

    def read(self) -> Range:
        lot = self._chance.random()
        if lot < 0.05:
            return Range(*self._one_of(self.keys.partial), limit=self._chance.randint(1, 4))
        if lot < 0.7:
            return Range(self._chance.choice(self.keys.free + self.keys.owned))
        return Range(*self._one_of(self.keys.ranges))

    def local(self) -> Range:
        if self._chance.random() < 0.3:
            return self._partly(0)
        return Range(self._key(), serializable=True)

    def past(self) -> Range:
        """An earlier revision; perhaps one that is compacted by now."""
        newest = self._newest()
        revision = self._chance.randint(max(1, newest - PAST), newest)
        lot = self._chance.random()
        if lot < 0.3:
            return self._partly(revision)
        span = (self._key(), b"") if lot < 0.65 else self._one_of(self.keys.ranges)
        return Range(*span, revision=revision)

    def _partly(self, revision: int) -> Range:
        """A part of a range, or in another order. Half of those at the latest revision are local."""
        span, serializable = self._one_of(self.keys.partial), not revision and self._chance.random() < 0.5
        kind = self._chance.randrange(4)
        if kind == 0:
            return Range(*span, revision=revision, serializable=serializable, count_only=True)
        if kind == 1:
            return Range(*span, revision=revision, serializable=serializable, keys_only=True)
        if kind == 2:
            return Range(*span, self._chance.randint(1, 3), revision, serializable=serializable)
        order, target = (
            self._chance.choice((SortOrder.ASCEND, SortOrder.DESCEND)),
            self._chance.choice(list(SortTarget)),
        )
        limit = self._chance.choice((0, 2))
        return Range(*span, limit, revision, sort_order=order, sort_target=target, serializable=serializable)


def absent(key: bytes) -> KeyValue:
    """An absent key as a compare sees it."""
    return KeyValue(key, b"", 0, 0, 0, 0)
