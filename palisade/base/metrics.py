"""Counters and histograms of a node: plain numbers on the hot path, converted to Prometheus' text on request."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable

from palisade.base.errors import PalisadeError

OUTCOME_UNKNOWN = "outcome-unknown"
"""`raftgroup.errors.OutcomeUnknown.code`."""

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
        """(upper bound, how many were at most that), the last one "+Inf"."""
        total, rows = 0.0, []
        for bound, count in zip([*map(str, self.bounds), "+Inf"], self.counts, strict=True):
            total += count
            rows.append((bound, total))
        return rows


class Metrics:
    """Counters and histograms of one process. `now` is a clock in seconds for durations."""

    now = staticmethod(time.perf_counter)

    def __init__(self) -> None:
        self.applied = 0
        self.unavailable = 0
        self.unknown = 0
        self.reads = 0
        self.events = 0
        self.watchers = 0
        self.http_requests: dict[int, int] = {}
        self.http_connections = 0
        self.stream_connections = 0
        self.connections_refused = 0
        self.write_latency = Histogram()
        self.fsync_latency = Histogram()
        """Of the journal."""

    def failed(self, error: PalisadeError) -> None:
        """A write that the group did not execute, or whose outcome is unknown."""
        if error.code == OUTCOME_UNKNOWN:
            self.unknown += 1
        else:
            self.unavailable += 1

    def answered(self, status: int) -> None:
        self.http_requests[status] = self.http_requests.get(status, 0) + 1
