"""Metrics of the realtime segments of a data node, and of their hand-offs (docs/metrics.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import Metric

from palisade.base.metric_families import counter, counters, gauge, gauges
from palisade.segments.realtime import RealtimeIngester
from palisade.segments.realtime_handoff import state_in
from palisade.segments.realtime_step import RealtimeState

GROWING = (RealtimeState.OPENING, RealtimeState.REALTIME)


def realtime_families(ingester: RealtimeIngester | None) -> Iterator[Metric]:
    """Empty on a node that stores no segments."""
    if ingester is None:
        return
    held = [(each, state_in(ingester, each)) for each in ingester.held.values()]
    found = Counter(state for _, state in held)
    growing = [each.log for each, state in held if state in GROWING]
    closed = ((each.closed_at, state) for each, state in held)
    waiting = [at for at, state in closed if at is not None and state is not RealtimeState.GIVEN_UP]
    states = ((state.value, found[state]) for state in RealtimeState)
    tally, now = ingester.tally, ingester.logs.now()
    yield gauges("palisade_realtime_segments", "Segments whose rows this node receives or hands off.", "state", states)
    yield gauge("palisade_realtime_rows", "Rows of the segments that grow.", sum(each.rows for each in growing))
    yield gauge("palisade_realtime_bytes", "Size of these rows.", sum(each.size_bytes for each in growing))
    yield counter("palisade_realtime_appended", "Rows that were acknowledged.", tally.appended)
    yield counter("palisade_realtime_handoffs", "Hand-offs that were completed.", tally.handed_off)
    yield gauge("palisade_realtime_handoffs_waiting", "Closed segments that are not handed off yet.", len(waiting))
    age_s = now - min(waiting) if waiting else 0.0
    yield gauge("palisade_realtime_handoff_age_seconds", "Age of the oldest hand-off that waits, or 0.", age_s)
    refused = sorted(tally.refused.items())
    yield counters("palisade_realtime_refused", "Refused requests by the code of their error.", "code", refused)
    yield gauge("palisade_realtime_damaged", "Directories of rows that cannot be read.", len(ingester.logs.damaged))
