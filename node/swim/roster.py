"""All records that a node has heard, the greatest one of each name, and whose turn it is to be pinged. Pure.

Nodes are pinged in turn, in a random order that is drawn anew after each round; a new one is put in at a random
place. So each is asked within 2 n - 1 periods, and no two nodes ask in the same order (SWIM, section 4.3).
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Protocol

from node.swim.record import Record


class Chance(Protocol):
    """Where randomness comes from: `random.Random` has it."""

    def randrange(self, stop: int, /) -> int: ...


class Roster:
    """`own` is this node's name: it is in the roster, and has no turn."""

    def __init__(self, own: str, chance: Chance) -> None:
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
        """In the order of their names: iteration must not depend on who was heard of first."""
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
        """Only of who is gone: its turn passes by itself."""
        del self._records[name]
        place = self._turns.index(name)
        del self._turns[place]
        self._next -= place < self._next

    def next_turn(self) -> Record | None:
        """Who is to be pinged now; None while this node knows no other one."""
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
        """At most `count` live ones, by chance, without this node and those that are named."""
        others = [each for each in self.live() if each.name != self._own and each.name not in without]
        shuffle(others, self._chance)
        return others[:count]

    def digest(self) -> int:
        """Equal on two nodes that know the same live nodes, but for a chance of 1 in 2^64."""
        return sum(_hash(each) for each in self._records.values() if each.is_live) % (1 << 64)


def _hash(record: Record) -> int:
    text = f"{record.name} {record.instance} {record.incarnation}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def shuffle(items: list[Record] | list[str], chance: Chance) -> None:
    """Fisher and Yates, over the one function that is handed in."""
    for place in range(len(items) - 1, 0, -1):
        other = chance.randrange(place + 1)
        items[place], items[other] = items[other], items[place]  # type: ignore[assignment]
