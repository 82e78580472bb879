"""Counters of a node. Plain numbers on the hot path; converted to Prometheus text on request."""

from __future__ import annotations

import time

from palisade.base.errors import PalisadeError
from palisade.base.histogram import Histogram

OUTCOME_UNKNOWN = "outcome-unknown"
"""`raftgroup.errors.OutcomeUnknown.code`."""


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
        """For the journal: call `fsync_latency.observe(seconds)` after each sync."""

    def failed(self, error: PalisadeError) -> None:
        """A write that the group did not execute, or whose outcome is unknown."""
        if error.code == OUTCOME_UNKNOWN:
            self.unknown += 1
        else:
            self.unavailable += 1

    def answered(self, status: int) -> None:
        self.http_requests[status] = self.http_requests.get(status, 0) + 1
