"""What clients ask for, whichever way they go: few keys, so that they meet, and values that only one request writes.

Keys below `s/` are in a strict region, those below `q/` are not.
"""

from __future__ import annotations

from collections.abc import Callable

from metastore.requests import Compare, CompareResult, CompareTarget, DeleteRange, Put, Range, Txn
from tests.sim.world import World

STRICT = (b"s/a", b"s/b", b"s/c")
EVENTUAL = (b"q/a", b"q/b")
KEYS = STRICT + EVENTUAL


class Asking:
    """Of all clients of one world: values are counted."""

    def __init__(self, world: World) -> None:
        self._world, self._chance = world, world.chance
        self._numbers = 0
        self._makes: tuple[tuple[float, Callable[[], Put | DeleteRange | Txn | Range]], ...] = (
            (0.40, self.put),
            (0.50, self.delete),
            (0.68, self.transaction),
            (0.90, self.read),
            (0.95, self.local),
            (1.00, self.past),
        )

    def anything(self) -> Put | DeleteRange | Txn | Range:
        lot = self._chance.random()
        return next(make for bound, make in self._makes if lot < bound)()

    def value(self) -> bytes:
        self._numbers += 1
        return b"%d" % self._numbers

    def put(self) -> Put:
        return Put(self._chance.choice(KEYS), self.value(), prev_kv=self._chance.random() < 0.3)

    def delete(self) -> DeleteRange:
        return DeleteRange(self._chance.choice(KEYS), prev_kv=True)

    def transaction(self) -> Txn:
        """Becomes the owner of a key that nobody owns, or changes two keys at once."""
        one, other = self._chance.choice(KEYS), self._chance.choice(KEYS)
        if self._chance.random() < 0.5 or one == other:
            absent = Compare(one, CompareTarget.VERSION, CompareResult.EQUAL, 0)
            return Txn((absent,), (Put(one, self.value()),), (Range(one),))
        value = self.value()
        return Txn(success=(Put(one, value), Put(other, value)))

    def read(self) -> Range:
        return Range(self._chance.choice(KEYS)) if self._chance.random() < 0.7 else Range(b"q", b"t")

    def local(self) -> Range:
        return Range(self._chance.choice(KEYS), serializable=True)

    def past(self) -> Range:
        """Of a revision of before; perhaps one that is compacted by now."""
        revision = self._chance.randint(max(1, self._world.revision - 30), self._world.revision)
        span = (self._chance.choice(KEYS), b"") if self._chance.random() < 0.5 else (b"q", b"t")
        return Range(*span, revision=revision)
