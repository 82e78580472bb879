"""Whether answers about a register whose writes have a known order are linearizable. Pure, without a search.

The value of a write is its place in that order, and a read has the value of the write that it returned. Since the order
is given, no answer may begin after the end of one with a later value (Herlihy and Wing); all that is needed beside that
is that no read ends before its write begins.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """Given between `began` and `ended`, by a reader, or to the writer of an acknowledged write."""

    began: float
    ended: float
    value: Any
    by: str


def overtaken(answers: Iterable[Answer], known: Iterable[Answer]) -> Iterator[tuple[Answer, Answer]]:
    """Each of `answers` whose value is older than that of one of `known` that had ended when it began, and that one."""
    ordered = sorted(known, key=lambda each: each.ended)
    ends = [each.ended for each in ordered]
    latest = list(accumulate(ordered, lambda one, other: other if other.value > one.value else one))
    for each in answers:
        before = bisect_left(ends, each.began)
        if before and latest[before - 1].value > each.value:
            yield each, latest[before - 1]
