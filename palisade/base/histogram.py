"""Durations counted by upper bound, in the form of Prometheus. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

LATENCY_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Histogram:
    """Durations in seconds, by upper bound."""

    __slots__ = ("bounds", "counts", "sum_s")

    def __init__(self, bounds: Iterable[float] = LATENCY_BUCKETS_S) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum_s += seconds

    def cumulative(self) -> list[tuple[str, float]]:
        """(upper bound, number of durations up to it), the last one "+Inf"."""
        total, rows = 0.0, []
        for bound, count in zip([*map(str, self.bounds), "+Inf"], self.counts, strict=True):
            total += count
            rows.append((bound, total))
        return rows
