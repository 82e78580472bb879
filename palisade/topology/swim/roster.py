"""All records that a node knows, the greatest one per name, and the order in which it pings them. Pure.

Nodes are pinged round-robin in a random order, which is drawn anew after each round; a new node is inserted at a random
position. Thus each node is pinged within 2 n - 1 periods, and nodes do not ping in the same order (SWIM, section 4.3).
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Protocol

from palisade.topology.swim.record import Record


class RandomSource(Protocol):
    """The source of randomness; `random.Random` implements it."""

    def randrange(self, stop: int, /) -> int: ...


class Roster:
    """`own`: this node's name, which is in the roster but never pinged."""

    def __init__(self, own: str, chance: RandomSource) -> None:
        self._own = own
        self._chance = chance
        self._records: dict[str, Record] = {}
        self._turns: list[str] = []
        self._next = 0

    def __iter__(self) -> Iterator[Record]:
        return iter(tuple(self._records.values()))

    def get(self, name: str) -> Record | None:
        return self._records.get(name)

    def live(self) -> list[Record]:
        """Sorted by name, so that iteration does not depend on the order of arrival."""
        return sorted((each for each in self._records.values() if each.is_live), key=lambda each: each.name)

    @property
    def live_count(self) -> int:
        return sum(each.is_live for each in self._records.values())

    def put(self, record: Record) -> None:
        known = record.name in self._records
        self._records[record.name] = record
        if not known and record.name != self._own:
            self._turns.insert(self._next + self._chance.randrange(len(self._turns) - self._next + 1), record.name)

    def forget(self, name: str) -> None:
        """Remove a record. Call only for nodes that are gone."""
        del self._records[name]
        place = self._turns.index(name)
        del self._turns[place]
        self._next -= place < self._next

    def next_turn(self) -> Record | None:
        """The next live node to ping; None if no other live node is known."""
        for _ in range(2 * len(self._turns)):
            if self._next >= len(self._turns):
                shuffle(self._turns, self._chance)
                self._next = 0
            record = self._records[self._turns[self._next]]
            self._next += 1
            if record.is_live:
                return record
        return None

    def sample(self, count: int, *without: str) -> list[Record]:
        """At most `count` random live nodes, without this node and those in `without`."""
        others = [each for each in self.live() if each.name != self._own and each.name not in without]
        shuffle(others, self._chance)
        return others[:count]

    def digest(self) -> int:
        """Equal on two nodes with the same live records; collides with probability 2^-64."""
        return sum(_hash(each) for each in self._records.values() if each.is_live) % (1 << 64)


def _hash(record: Record) -> int:
    text = f"{record.name} {record.instance} {record.incarnation}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def shuffle(items: list[Record] | list[str], chance: RandomSource) -> None:
    """Fisher-Yates, using `RandomSource` only."""
    for place in range(len(items) - 1, 0, -1):
        other = chance.randrange(place + 1)
        items[place], items[other] = items[other], items[place]  # type: ignore[assignment]
