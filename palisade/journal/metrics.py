"""Metrics of one copy of a journal, computed from its state at the time of each scrape (docs/metrics.md)."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from palisade.base.metric_families import counter, counters, gauge, gauges, histogram
from palisade.base.metrics import Histogram
from palisade.catalog.activation import ReplicaState
from palisade.journal.active import Active
from palisade.journal.copy_state import CopyState
from palisade.journal.role import RoleRunner, RoleState


class JournalMetrics(Collector):
    """`syncs`: the durations of the syncs of its files."""

    def __init__(self, runner: RoleRunner, syncs: Histogram) -> None:
        self._runner, self._syncs = runner, syncs

    def collect(self) -> Iterator[Metric]:
        runner, copy = self._runner, self._runner.copy
        own = {"role": copy.options.role, "name": copy.options.own.name}
        yield InfoMetricFamily("palisade_journal", "Role and name of this copy.", value=own)
        states = ((each.value, each is runner.state) for each in RoleState)
        yield gauges("palisade_journal_state", "1 for the state of this copy.", "state", states)
        yield from copy_families(copy)
        agreed = runner.agreed_record
        yield gauge(
            "palisade_journal_agreed_sequence",
            "Agreed sequence as this copy last read it.",
            agreed.sequence if agreed else 0,
        )
        yield histogram("palisade_journal_fsync_seconds", "Durations of syncs of the journal's files.", self._syncs)
        if runner.active is not None:
            yield from active_families(runner.active)

    def describe(self) -> Iterator[Metric]:
        return iter(())


def copy_families(copy: CopyState) -> Iterator[Metric]:
    local, tally = copy.state.local, copy.tally
    yield gauge("palisade_journal_sequence", "Local sequence.", local.sequence if local else 0)
    yield gauge("palisade_journal_last_entry", "Number of the last entry that is written.", copy.log.end.last)
    yield gauge("palisade_journal_bytes", "Size of the journal's files.", copy.log.size_bytes)
    yield counter("palisade_journal_activations", "How often this copy became active.", tally.activations)
    yield counter("palisade_journal_replicas_lost", "Replicas in sync that were lost.", tally.replicas_lost)
    yield counter("palisade_journal_entries_aside", "Entries that were moved to a separate file.", tally.entries_aside)
    refused = sorted(tally.refused.items())
    yield counters("palisade_journal_refusals", "Requests and connections that were refused.", "code", refused)


def active_families(active: Active) -> Iterator[Metric]:
    progress = active.progress
    yield gauge("palisade_journal_acknowledged_entry", "Number of the last acknowledged entry.", progress.acknowledged)
    yield gauge("palisade_journal_held_bytes", "Size of the requests without an answer.", active.held_bytes)
    yield gauge(
        "palisade_journal_lease_seconds", "Time until this copy stops acknowledging.", max(0.0, active.remaining_s)
    )
    states = ((each.value, each is progress.replica) for each in ReplicaState)
    yield gauges("palisade_journal_replica_state", "1 for the state of the replica.", "state", states)
    if progress.replica in (ReplicaState.CATCHING_UP, ReplicaState.IN_SYNC):
        lag = progress.appended - progress.replica_synced
        yield gauge("palisade_journal_replica_lag_entries", "Entries that the replica has not synced.", lag)
