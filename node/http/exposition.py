"""What `/metrics` shows, made at the moment of asking from the state of the node and its counters."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from node.cluster_view import not_ready
from node.metrics import Histogram
from node.service import Service
from node.swim.wire import Drop
from node.topology.view import standings_of, states_of
from node.version import VERSION
from raftgroup.role import Role
from recovery.decide import Case


class Exposition(Collector):
    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        yield from self._node()
        yield from self._store()
        yield from self._requests()
        yield from self._topology()
        yield from self._recovery()

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def _node(self) -> Iterator[Metric]:
        status = self._service.group.status()
        info = GaugeMetricFamily("palisade_info", "Version and name of the node.", labels=["version", "member"])
        info.add_metric([VERSION, status.member], 1)
        yield info
        role = GaugeMetricFamily("palisade_role", "1 for the role of the node.", labels=["role"])
        for each in Role:
            role.add_metric([each.value], float(each is status.role))
        yield role
        yield _gauge("palisade_term", "Raft term.", status.term)
        yield _gauge("palisade_has_leader", "Whether a leader is known.", status.leader is not None)
        yield _gauge("palisade_ready", "Whether the node should get requests.", not not_ready(self._service))
        yield _gauge("palisade_commit_index", "Index of the last committed entry.", status.commit_index)
        yield _gauge("palisade_applied_index", "Index of the last applied entry.", status.applied_index)
        yield _gauge("palisade_synced_index", "Index of the last entry that is on disk.", status.synced_index)
        yield _gauge("palisade_log_entries", "Entries that the log holds.", status.last_index - status.first_index)
        yield _gauge("palisade_quorum_lease_seconds", "How long reads need no round.", status.lease_remaining_ms / 1000)
        yield _gauge("palisade_members", "Members of the group.", len(status.members))

    def _store(self) -> Iterator[Metric]:
        store = self._service.store
        yield _gauge("palisade_generation", "How often history was broken, and one.", store.lineage.generation)
        yield _gauge("palisade_revision", "LM: the latest revision.", store.revision)
        yield _gauge("palisade_minimal_revision", "MM: the oldest readable revision.", store.minimal_revision)
        yield _gauge("palisade_keys", "Keys that exist.", store.key_count)
        yield _gauge("palisade_store_bytes", "Logical size of the store, which the quota limits.", store.size_bytes)
        yield _gauge("palisade_quota_bytes", "Quota of the store.", store.limits.quota_bytes)
        yield _gauge("palisade_quota_alarm", "1 while writes are refused because the store is full.", store.alarm)
        yield _gauge("palisade_leases", "Leases that live.", len(store.leases()))

    def _topology(self) -> Iterator[Metric]:
        topology = self._service.topology
        if topology is None:
            return
        socket = topology.socket
        physical = GaugeMetricFamily(
            "palisade_physical_nodes", "Nodes in the physical topology as this node sees it.", labels=["state"]
        )
        for name, count in states_of(topology.physical.records()).items():
            physical.add_metric([name], count)
        yield physical
        yield _gauge("palisade_in_topology", "1 while this node is in the logical topology.", topology.is_active)
        if topology.registrar is not None:
            logical = GaugeMetricFamily("palisade_logical_nodes", "Nodes by standing.", labels=["standing"])
            for standing, count in standings_of(topology.logical()[0]).items():
                logical.add_metric([standing], count)
            yield logical
            yield _counter("palisade_joins_rejected", "Nodes that were refused for good.", topology.registrar.rejected)
            yield _counter("palisade_nodes_dropped", "Nodes dropped from the topology.", topology.registrar.drops)
        yield _counter("palisade_swim_received", "Datagrams that came.", socket.received)
        yield _counter("palisade_swim_sent", "Datagrams that went out.", socket.sent)
        dropped = CounterMetricFamily("palisade_swim_dropped", "Datagrams that counted for nothing.", labels=["reason"])
        for reason in Drop:
            dropped.add_metric([reason.value], socket.dropped[reason])
        yield dropped

    def _recovery(self) -> Iterator[Metric]:
        reports = self._service.recoveries()
        if not reports:
            return
        last = reports[-1]
        yield _gauge(
            "palisade_vault_revision", "LV: the revision that the vault holds.", self._service.vault_revision()
        )
        yield _counter("palisade_recoveries", "Recoveries of this process.", len(reports))
        case = GaugeMetricFamily("palisade_recovery_case", "1 for the case of the last recovery.", labels=["case"])
        for each in Case:
            case.add_metric([each.value], float(each is last.case))
        yield case
        yield _gauge("palisade_recovery_seconds", "How long the last recovery took.", last.seconds)
        yield _gauge(
            "palisade_recovery_replayed", "Revisions that the last recovery replayed.", last.revisions_replayed
        )
        yield _gauge("palisade_recovery_bytes", "Bytes that the last recovery fetched.", last.bytes_fetched)

    def _requests(self) -> Iterator[Metric]:
        metrics = self._service.metrics
        proposals = CounterMetricFamily("palisade_proposals", "Writes by what they came to.", labels=["outcome"])
        proposals.add_metric(["applied"], metrics.applied)
        proposals.add_metric(["unavailable"], metrics.unavailable)
        proposals.add_metric(["unknown"], metrics.unknown)
        yield proposals
        answers = CounterMetricFamily("palisade_http_responses", "Answers over HTTP by status.", labels=["status"])
        for status, count in sorted(metrics.http_requests.items()):
            answers.add_metric([str(status)], count)
        yield answers
        yield _counter("palisade_reads", "Reads of the store.", metrics.reads)
        yield _counter("palisade_watch_revisions", "Revisions handed to watchers.", metrics.events)
        yield _gauge("palisade_watchers", "Watches that are open.", metrics.watchers)
        yield _gauge("palisade_http_connections", "Open connections of HTTP.", metrics.http_connections)
        yield _gauge("palisade_stream_connections", "Open connections of the stream.", metrics.stream_connections)
        refused = metrics.connections_refused
        yield _counter("palisade_connections_refused", "Clients for whom there were no file descriptors.", refused)
        yield _histogram("palisade_write_seconds", "From request to result of a write.", metrics.write_latency)
        yield _histogram("palisade_fsync_seconds", "Syncs of the journal.", metrics.fsync_latency)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=float(value))


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def _histogram(name: str, text: str, histogram: Histogram) -> Metric:
    family = HistogramMetricFamily(name, text)
    family.add_metric([], histogram.cumulative(), histogram.sum_s)
    return family
