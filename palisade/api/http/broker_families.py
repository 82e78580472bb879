"""Metrics of a node's broker: its view of the segments, and its lookups (docs/metrics.md)."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from palisade.base.metric_families import counters, gauge
from palisade.segments.broker import SegmentBroker


def broker_families(broker: SegmentBroker | None) -> Iterator[Metric]:
    """Empty on a node without a broker. Without a first sync there is no age, and no time that it took."""
    if broker is None:
        return
    counts = broker.counts()
    yield gauge("palisade_broker_synced", "1 once the broker has read every segment.", broker.is_synced)
    yield gauge("palisade_broker_revision", "Revision of the broker's view.", broker.revision)
    if broker.age_s is not None and broker.first_sync_s is not None:
        yield gauge("palisade_broker_view_age_seconds", "Since the view was last known to be current.", broker.age_s)
        yield gauge("palisade_broker_first_sync_seconds", "How long the first sync took.", broker.first_sync_s)
    yield gauge("palisade_broker_segments_known", "Segments with a record or an announcement.", counts.known)
    yield gauge("palisade_broker_segments_queryable", "Segments that queries count on.", counts.queryable)
    yield gauge("palisade_broker_segments_missing", "Segments that queries count on, without a server.", counts.missing)
    outcomes = sorted(broker.lookups.items())
    yield counters(
        "palisade_broker_lookups", "Lookups by outcome: complete, missing or an error code.", "outcome", outcomes
    )
