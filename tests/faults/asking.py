"""Requests of mixed clients: few keys at a time, so that they conflict, and values that only one request writes.

After `ROUND` requests they move on to other keys: with lost responses, the linearizability of a key with too many
operations could not be decided.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from palisade.metastore.requests import Compare, CompareResult, CompareTarget, DeleteRange, Put, Range, Txn, prefix_end

Request = Put | DeleteRange | Txn | Range

STRICT = b"/strict/"
"""Every key below is in a strict region."""
EVENTUAL = b"/strict-not/"
"""Outside of strict regions, and directly before them in the order of keys: one range has both."""
ROUND = 60
PAST_REVISIONS = 100
MIXED = 0.15
"""The share of ranges with keys of both kinds."""


class Asking:
    """`name`: part of the keys, which no other client has written: `/strict/NAME/ROUND/a` and
    `/strict-not/NAME/ROUND/a`. `revision`: the newest known one."""

    def __init__(self, name: str, chance: Random) -> None:
        self.prefixes = tuple(region + f"{name}/".encode() for region in (STRICT, EVENTUAL))
        self.revision = 1
        self._chance = chance
        self._asked = self._values = 0
        self._newest: dict[bytes, bytes] = {}
        """The last known value of a key, which a swap expects."""
        self._makes: tuple[tuple[float, Callable[[], Request]], ...] = (
            (0.24, self._put),
            (0.34, self._swap),
            (0.42, self._own),
            (0.50, self._two),
            (0.58, self._delete),
            (0.88, self._read),
            (0.93, self._local),
            (1.00, self._past),
        )

    def anything(self) -> Request:
        self._asked += 1
        lot = self._chance.random()
        return next(make for bound, make in self._makes if lot < bound)()

    def fenced(self) -> Range:
        """A read of a vault: of a strict key, or of all keys, strict and other ones, as of one revision."""
        self._asked += 1
        if self._chance.random() < MIXED:
            return self.mixed()
        return Range(self._chance.choice(self._keys(self.prefixes[0])))

    def mixed(self) -> Range:
        """Contains keys of others if there are any between."""
        strict, eventual = self.prefixes
        return Range(eventual, prefix_end(strict))

    def leased(self) -> bytes:
        """A key that is attached to a lease."""
        return self._place(self._chance.choice(self.prefixes)) + b"owner"

    def value(self) -> bytes:
        self._values += 1
        return b"%d" % self._values

    def _place(self, prefix: bytes) -> bytes:
        return prefix + b"%d/" % (self._asked // ROUND)

    def _keys(self, prefix: bytes) -> list[bytes]:
        return [self._place(prefix) + name for name in (b"a", b"b")]

    def _key(self) -> bytes:
        return self._chance.choice([key for prefix in self.prefixes for key in self._keys(prefix)])

    def _new(self, key: bytes) -> bytes:
        self._newest[key] = value = self.value()
        return value

    def _put(self) -> Put:
        key = self._key()
        return Put(key, self._new(key), prev_kv=self._chance.random() < 0.3)

    def _swap(self) -> Txn:
        key = self._key()
        equal = Compare(key, CompareTarget.VALUE, CompareResult.EQUAL, self._newest.get(key, b"0"))
        return Txn((equal,), (Range(key), Put(key, self._new(key))), (Range(key),))

    def _own(self) -> Txn:
        """A key that does not exist."""
        key = self._key()
        absent = Compare(key, CompareTarget.VERSION, CompareResult.EQUAL, 0)
        return Txn((absent,), (Put(key, self._new(key)),), (Range(key),))

    def _two(self) -> Txn:
        """Two keys; of one kind, or one of each."""
        one, other = self._chance.sample([key for prefix in self.prefixes for key in self._keys(prefix)], 2)
        return Txn(success=(Put(one, self._new(one)), Put(other, self._new(other))))

    def _delete(self) -> DeleteRange:
        if self._chance.random() < 0.8:
            return DeleteRange(self._key(), prev_kv=True)
        return DeleteRange(*self._span(), prev_kv=True)

    def _read(self) -> Range:
        if self._chance.random() < MIXED:
            return self.mixed()
        return Range(self._key()) if self._chance.random() < 0.6 else Range(*self._span())

    def _local(self) -> Range:
        return Range(self._key(), serializable=True)

    def _past(self) -> Range:
        revision = self._chance.randint(max(1, self.revision - PAST_REVISIONS), self.revision)
        if self._chance.random() < MIXED:
            return replace(self.mixed(), revision=revision)
        return Range(*self._span(), revision=revision)

    def _span(self) -> tuple[bytes, bytes]:
        start = self._place(self._chance.choice(self.prefixes))
        return start, prefix_end(start)


def is_mixed(request: Range) -> bool:
    """Whether it is as of `Asking.mixed`."""
    return request.key.startswith(EVENTUAL) and request.range_end.startswith(STRICT)
