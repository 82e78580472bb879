"""Which records a node gossips with its messages, and how often. Pure.

Each record is sent a bounded number of times, the least often sent first. Thus the cost per message is bounded, and
each rumour still reaches all nodes with high probability (SWIM, section 4.1).
"""

from __future__ import annotations

from collections.abc import Callable

from palisade.topology.swim.record import Record


class RumourBook:
    """`size_of`: bytes of a record in a message."""

    def __init__(self, size_of: Callable[[Record], int]) -> None:
        self._size_of = size_of
        self._sent: dict[str, int] = {}
        self._records: dict[str, Record] = {}
        self._sizes: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._records)

    def add(self, record: Record) -> None:
        """Spread this record, replacing any other one of the same node."""
        self._records[record.name] = record
        self._sent[record.name] = 0
        self._sizes[record.name] = self._size_of(record)

    def take(self, bytes_max: int, times_max: int, first: Record | None = None) -> tuple[Record, ...]:
        """As many as fit. `first` is always included and not counted, because it concerns the receiver."""
        taken: list[Record] = []
        room = bytes_max
        if first is not None:
            taken.append(first)
            room -= self._size_of(first)
        for name in sorted(self._records, key=lambda each: (self._sent[each], each)):
            if first is not None and name == first.name:
                continue
            if self._sizes[name] > room:
                continue
            room -= self._sizes[name]
            taken.append(self._records[name])
            self._count(name, times_max)
        return tuple(taken)

    def _count(self, name: str, times_max: int) -> None:
        self._sent[name] += 1
        if self._sent[name] >= times_max:
            del self._records[name], self._sent[name], self._sizes[name]
