"""Metrics of the segments that a node stores and of those that are past their TTL (P6; docs/metrics.md)."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from palisade.base.metric_families import counter, gauge, gauges
from palisade.segments.holder import SegmentHolder
from palisade.segments.view import bytes_of, counts_of


def segment_families(holder: SegmentHolder | None) -> Iterator[Metric]:
    """Empty on a node that stores none."""
    if holder is None:
        return
    tally, retention = holder.tally, holder.retention.view()
    yield gauges("palisade_segments", "Segments of this node by state.", "state", counts_of(holder).items())
    sizes = (("local", bytes_of(holder.segment_store.held)), ("trashed", bytes_of(holder.segment_store.trashed)))
    yield gauges("palisade_segments_bytes", "Size of the rows of local and trashed segments.", "state", sizes)
    yield gauge("palisade_segments_announced", "Copies that this node announces.", holder.announcements.state()[0])
    yield counter("palisade_segments_fetched", "Segments that were fetched.", tally.fetched)
    yield counter("palisade_segments_evicted", "Segments that were removed as not assigned.", tally.evicted)
    yield counter("palisade_segments_trashed", "Moves of segments past their TTL into the trash.", tally.trashed)
    yield counter("palisade_segments_purged", "Segments past their TTL that were deleted.", tally.purged)
    yield counter("palisade_segments_restored", "Segments restored from the trash.", tally.restored)
    yield gauge("palisade_retention_works", "1 while TTL rules can be trusted and acted on.", retention["works"])
    yield counter("palisade_retention_passes", "Checks for segments past their TTL.", retention["passes"])
    yield counter("palisade_retention_refused", "Checks that the fence refused.", retention["refused"])
