"""Metrics of the partitions that a node stores and of those that are past their TTL (P6)."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from palisade.api.http.metric_families import counter, gauge, gauges
from palisade.segments.holder import PartitionHolder
from palisade.segments.view import counts_of


def partition_families(holder: PartitionHolder | None) -> Iterator[Metric]:
    """Empty on a node that stores none."""
    if holder is None:
        return
    tally, retention = holder.tally, holder.retention_view()
    yield gauges("palisade_partitions", "Partitions of this node by state.", "state", counts_of(holder).items())
    yield counter("palisade_partitions_fetched", "Partitions that were fetched.", tally.fetched)
    yield counter("palisade_partitions_evicted", "Partitions that were removed as not assigned.", tally.evicted)
    yield counter("palisade_partitions_trashed", "Moves of partitions past their TTL into the trash.", tally.trashed)
    yield counter("palisade_partitions_purged", "Partitions past their TTL that were removed for good.", tally.purged)
    yield counter("palisade_partitions_restored", "Partitions that came back from the trash.", tally.restored)
    yield gauge("palisade_retention_works", "1 while TTL rules can be trusted and acted on.", retention["works"])
    yield counter("palisade_retention_passes", "Checks for partitions past their TTL.", retention["passes"])
    yield counter("palisade_retention_refused", "Checks that the fence refused.", retention["refused"])
