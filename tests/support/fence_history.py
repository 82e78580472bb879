"""Whether a history of fenced reads of one key is linearizable: its value only grows, with one writer at a time.

A read must not be older than any write that was acknowledged before it began (stale), nor older than any earlier read
on any node (new-then-old; issue 4, "Shown by", 2). Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Told(NamedTuple):
    """`value` was returned between `began` and `ended`. `by`: a reader, or the writer of the acknowledged write."""

    began: float
    ended: float
    value: int
    by: str


def violations(reads: Sequence[Told], answered: Iterable[Told]) -> list[str]:
    """Each read that returned less than an earlier result."""
    told = sorted([*reads, *answered], key=lambda each: each.ended)
    ends = [each.ended for each in told]
    newest: list[Told] = []
    for each in told:
        newest.append(each if not newest or each.value > newest[-1].value else newest[-1])
    found = []
    for read in reads:
        before = bisect_left(ends, read.began)
        if before and newest[before - 1].value > read.value:
            known = newest[before - 1]
            found.append(
                f"{read.by} read {read.value} at {read.began:.6f}, {known.value} had been told by {known.by} "
                f"at {known.ended:.6f}"
            )
    return found


def reads_of(text: str, by: str) -> tuple[list[Told], list[tuple[float, str]]]:
    """(the reads that returned a value, the others by time) in the output of `fence_reader`, without a torn last
    line."""
    told, other = [], []
    for line in text.splitlines(keepends=True):
        fields = line.split()
        if not line.endswith("\n") or len(fields) != 3:
            continue
        if fields[2].isdigit():
            told.append(Told(float(fields[0]), float(fields[1]), int(fields[2]), by))
        else:
            other.append((float(fields[0]), fields[2]))
    return told, other
