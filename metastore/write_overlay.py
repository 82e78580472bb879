"""Unflushed writes, one layer per table, and scans over layers. Pure.

A layer is a dict; None stands for a deleted key. Keys are never removed from a layer, so the insertion order of the
dict shows which keys were added since the last sort.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import islice

from palisade.metastore.ordered_map import Table

FEW_KEYS = 32
RUN_KEYS = 4096


class Layer:
    """The writes of one table. `bytes` grows with every write: it bounds the layer, and shows that it has changed."""

    __slots__ = ("_sorted", "bytes", "values")

    def __init__(self) -> None:
        self.values: dict[bytes, bytes | None] = {}
        self.bytes = 0
        self._sorted: list[bytes] = []

    def keys(self) -> list[bytes]:
        """Every key in order. A few new ones are inserted; many are merged by sorting, which is nearly linear."""
        new = len(self.values) - len(self._sorted)
        if new:
            added = islice(reversed(self.values), new)
            if new <= FEW_KEYS:
                for key in added:
                    insort(self._sorted, key)
            else:
                self._sorted.extend(added)
                self._sorted.sort()
        return self._sorted

    def scan(self, start: bytes, end: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes | None]]:
        keys = self.keys()
        first = bisect_left(keys, start)
        stop = len(keys) if end is None else bisect_left(keys, end)
        numbers = range(stop - 1, first - 1, -1) if reverse else range(first, stop)
        return ((keys[number], self.values[keys[number]]) for number in numbers)

    def sort_in_slices(self) -> Iterator[None]:
        """Sort the keys permanently; yields between slices of about a millisecond. No write may come in between; reads
        may: the visible order changes only when the sort is complete."""
        new = list(islice(reversed(self.values), len(self.values) - len(self._sorted)))
        found = self._sorted.copy()
        for start in range(0, len(new), RUN_KEYS):
            found.extend(sorted(new[start : start + RUN_KEYS]))
            yield
            if len(self._sorted) == len(self.values):
                return
        found.sort()
        self._sorted = found

    def touches(self, start: bytes, end: bytes | None) -> bool:
        """Whether it has a key in the range."""
        keys = self.keys()
        first = bisect_left(keys, start)
        return first < len(keys) and (end is None or keys[first] < end)


def new_layers() -> list[Layer]:
    return [Layer() for _ in Table]


def merged(
    upper: Iterator[tuple[bytes, bytes | None]], lower: Iterator[tuple[bytes, bytes | None]], reverse: bool
) -> Iterator[tuple[bytes, bytes | None]]:
    """Both in order; where both have a key, the upper one takes precedence."""
    above, below = next(upper, None), next(lower, None)
    while above is not None and below is not None:
        if above[0] == below[0]:
            yield above
            above, below = next(upper, None), next(lower, None)
        elif (above[0] < below[0]) is not reverse:
            yield above
            above = next(upper, None)
        else:
            yield below
            below = next(lower, None)
    if above is not None:
        yield above
        yield from upper
    if below is not None:
        yield below
        yield from lower
