"""The metrics of a member of the Raft group, computed at the time of each scrape from its state and counters."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from palisade.api.cluster_view import not_ready
from palisade.api.http.broker_families import broker_families
from palisade.api.http.realtime_families import realtime_families
from palisade.api.http.segment_families import segment_families
from palisade.api.http.vault_metrics import info, recovery_families, topology_families
from palisade.api.services import NodeServices
from palisade.base.metric_families import counter, counters, gauge, gauges, histogram
from palisade.catalog.procedures import ENDED
from palisade.raftgroup.role import RaftRole
from palisade.raftgroup.status import GroupStatus
from palisade.segments.local_segments import LocalSegments
from palisade.service.procedure_runner import Runner


class Exposition(Collector):
    def __init__(self, services: NodeServices, segments: LocalSegments | None = None) -> None:
        self._services, self._segments = services, segments or LocalSegments()
        self._service = services.key_values

    def collect(self) -> Iterator[Metric]:
        yield from self._node()
        yield from self._store()
        yield from self._requests()
        if self._services.catalog is not None:
            yield from catalog_families(self._services.catalog.runner)
        yield from self._authorization()
        if self._services.topology is not None:
            yield from topology_families(self._services.topology)
        yield from recovery_families(self._services.vault)
        yield from self._services.fencing_families()
        yield from segment_families(self._segments.holder)
        yield from realtime_families(self._segments.realtime)
        yield from broker_families(self._services.broker)

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def _node(self) -> Iterator[Metric]:
        status = self._service.group.status()
        yield info(status.member)
        roles = ((role.value, role is status.role) for role in RaftRole)
        yield gauges("palisade_role", "1 for the role of the node.", "role", roles)
        yield gauge("palisade_term", "Raft term.", status.term)
        yield gauge("palisade_has_leader", "Whether a leader is known.", status.leader is not None)
        yield gauge("palisade_ready", "Whether the node should get requests.", not not_ready(self._services))
        yield gauge("palisade_commit_index", "Index of the last committed entry.", status.commit_index)
        yield gauge("palisade_applied_index", "Index of the last applied entry.", status.applied_index)
        yield gauge("palisade_synced_index", "Index of the last entry that is on disk.", status.synced_index)
        yield gauge("palisade_log_entries", "Entries in the log.", status.last_index - status.first_index)
        yield gauge(
            "palisade_quorum_lease_seconds", "Remaining time of the quorum lease.", status.lease_remaining_ms / 1000
        )
        yield gauge("palisade_members", "Members of the group.", len(status.members))
        yield from raft_families(status)

    def _authorization(self) -> Iterator[Metric]:
        authorizer = self._services.authorizer
        yield gauge("palisade_authorization", "1 if authorization is on.", authorizer is not None)
        if authorizer is not None:
            refusals, logins = sorted(authorizer.refusals.items()), sorted(authorizer.logins.items())
            yield counters("palisade_authorization_refusals", "Refused requests by reason.", "reason", refusals)
            yield counters("palisade_logins", "Checked passwords by outcome.", "outcome", logins)

    def _store(self) -> Iterator[Metric]:
        store = self._service.store
        yield gauge(
            "palisade_generation",
            "Generation of the cluster; a restore or a forced cluster raises it.",
            store.lineage.generation,
        )
        yield gauge("palisade_revision", "LM: the latest revision.", store.revision)
        yield gauge("palisade_minimal_revision", "MM: the oldest readable revision.", store.minimal_revision)
        yield gauge("palisade_keys", "Live keys.", store.key_count)
        yield gauge("palisade_store_bytes", "Logical size of the store, which the quota limits.", store.size_bytes)
        yield gauge("palisade_quota_bytes", "Quota of the store.", store.limits.quota_bytes)
        yield gauge("palisade_quota_alarm", "1 while writes are refused because the store is full.", store.alarm)
        yield gauge("palisade_leases", "Leases that have not expired.", len(store.leases()))

    def _requests(self) -> Iterator[Metric]:
        metrics = self._service.metrics
        outcomes = (("applied", metrics.applied), ("unavailable", metrics.unavailable), ("unknown", metrics.unknown))
        yield counters("palisade_proposals", "Writes by outcome.", "outcome", outcomes)
        answers = ((str(status), count) for status, count in sorted(metrics.http_requests.items()))
        yield counters("palisade_http_responses", "HTTP responses by status.", "status", answers)
        yield counter("palisade_reads", "Reads of the store.", metrics.reads)
        yield counter("palisade_watch_revisions", "Revisions sent to watchers.", metrics.events)
        yield gauge("palisade_watchers", "Open watches.", metrics.watchers)
        yield gauge("palisade_http_connections", "Open HTTP connections.", metrics.http_connections)
        yield gauge("palisade_stream_connections", "Open stream connections.", metrics.stream_connections)
        refused = metrics.connections_refused
        yield counter(
            "palisade_connections_refused", "Connections refused because of the limit of open files.", refused
        )
        yield histogram(
            "palisade_write_seconds", "Time from the request of a write to its result.", metrics.write_latency
        )
        yield histogram("palisade_fsync_seconds", "Durations of syncs of the journal.", metrics.fsync_latency)


def raft_families(status: GroupStatus) -> Iterator[Metric]:
    """The consensus, in total and by member. Only the leader has the progress of the members."""
    elections = (("started", status.elections_started), ("won", status.elections_won))
    yield counters("palisade_elections", "Elections with this node as candidate.", "outcome", elections)
    yield counter(
        "palisade_snapshots_installed", "Snapshots of the group that this node installed.", status.snapshots_installed
    )
    others = [each for each in status.members if each.member.id != status.member]
    for name, text, values in (
        (
            "palisade_peer_match_index",
            "Last log entry known to be on the member.",
            [each.match_index for each in others],
        ),
        ("palisade_peer_next_index", "Next entry to send to the member.", [each.next_index for each in others]),
    ):
        known = zip((each.member.id for each in others), values, strict=True)
        yield gauges(name, text, "peer", ((peer, value) for peer, value in known if value is not None))
    connected = ((each.member.id, each.connected) for each in others)
    yield gauges("palisade_peer_connected", "Whether the member is connected and answers.", "peer", connected)
    retries = ((each.member.id, each.append_retries) for each in others)
    yield counters("palisade_append_retries", "Appends repeated because entries were missing.", "peer", retries)
    sent = ((each.member.id, each.snapshots_sent) for each in others)
    yield counters("palisade_snapshots_sent", "Snapshots sent from this node that the member installed.", "peer", sent)


def catalog_families(runner: Runner) -> Iterator[Metric]:
    yield gauge("palisade_procedures_open", "Procedures that this node is executing.", len(runner.working))
    ended = ((state.value, runner.ended[state]) for state in sorted(ENDED, key=lambda state: state.value))
    yield counters("palisade_procedures", "Procedures that ended on this node, by final state.", "state", ended)
