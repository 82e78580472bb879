"""Metrics of the topology and of recoveries, on every kind of node; the only ones on a node that is no member."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from palisade.base.metric_families import counter, counters, gauge, gauges
from palisade.base.version import VERSION
from palisade.recovery.decision import Case
from palisade.recovery.report import RecoveryPhase, RecoveryReport
from palisade.recovery.status import RecoveryStatus
from palisade.topology.swim.wire import DropReason
from palisade.topology.topology import Topology
from palisade.topology.view import standings_of, states_of


class VaultExposition(Collector):
    """`ready`: whether the node is. `topology`: None on a node without a cluster."""

    def __init__(
        self,
        member: str,
        ready: Callable[[], bool],
        recovery: RecoveryStatus,
        topology: Topology | None = None,
        more: Callable[[], Iterable[Metric]] = tuple,
    ) -> None:
        """`more`: further families, computed for each scrape."""
        self._member, self._ready, self._recovery, self._topology, self._more = member, ready, recovery, topology, more

    def collect(self) -> Iterator[Metric]:
        yield info(self._member)
        yield gauge("palisade_ready", "Whether the node should get requests.", self._ready())
        if self._topology is not None:
            yield from topology_families(self._topology)
        yield from recovery_families(self._recovery)
        yield from self._more()

    def describe(self) -> Iterator[Metric]:
        return iter(())


def info(member: str) -> Metric:
    family = GaugeMetricFamily("palisade_info", "Version and name of the node.", labels=["version", "member"])
    family.add_metric([VERSION, member], 1)
    return family


def topology_families(topology: Topology) -> Iterator[Metric]:
    socket = topology.socket
    states = states_of(topology.physical.records()).items()
    yield gauges("palisade_physical_nodes", "Nodes in the physical topology as this node sees it.", "state", states)
    yield gauge("palisade_in_topology", "1 while this node is in the logical topology.", topology.is_active)
    if topology.age_s() is not None:
        standings = standings_of(topology.logical()[0]).items()
        yield gauges("palisade_logical_nodes", "Nodes by standing.", "standing", standings)
    if topology.registrar is not None:
        yield counter("palisade_joins_rejected", "Nodes that were rejected permanently.", topology.registrar.rejected)
        yield counter("palisade_nodes_dropped", "Nodes dropped from the topology.", topology.registrar.drops)
    yield counter("palisade_swim_received", "Datagrams received.", socket.received)
    yield counter("palisade_swim_sent", "Datagrams sent.", socket.sent)
    drops = ((reason.value, socket.dropped[reason]) for reason in DropReason)
    yield counters("palisade_swim_dropped", "Datagrams dropped as invalid.", "reason", drops)


def recovery_families(recovery: RecoveryStatus | None) -> Iterator[Metric]:
    """R12. Of the last recovery, which may still be running."""
    if recovery is None:
        return
    reports = recovery.reports
    yield gauge("palisade_vault_revision", "LV: the revision that the vault holds.", recovery.revision)
    yield counter("palisade_recoveries", "Recoveries of this process.", recovery.begun)
    if recovery.difference is not None:
        text = "Largest LM - LV at which a node counts as caught up."
        yield gauge("palisade_recovery_acceptable_difference", text, recovery.difference.value)
    yield from progress_families(recovery)
    if reports:
        yield from report_families(reports[-1])


def progress_families(recovery: RecoveryStatus) -> Iterator[Metric]:
    progress = recovery.progress
    yield gauge("palisade_recovery_running", "1 while a recovery runs.", progress is not None)
    present = progress.phase if progress is not None else None
    phases = ((phase.value, phase is present) for phase in RecoveryPhase)
    yield gauges("palisade_recovery_phase", "1 for the running phase.", "phase", phases)
    done, expected = (progress.done, progress.total) if progress is not None else (0, 0)
    yield gauge("palisade_recovery_done", "Progress of the running phase, in its unit.", done)
    yield gauge("palisade_recovery_expected", "Total of the running phase, in its unit; 0 if unknown.", expected)


def report_families(last: RecoveryReport) -> Iterator[Metric]:
    cases = ((case.value, case is last.case) for case in Case)
    yield gauges("palisade_recovery_case", "1 for the case of the last recovery.", "case", cases)
    yield gauge("palisade_recovery_seconds", "How long the last recovery took, or has taken so far.", last.seconds)
    phases = ((phase.value, seconds) for phase, seconds in last.phases)
    yield gauges("palisade_recovery_phase_seconds", "How long each phase of it took.", "phase", phases)
    yield gauge("palisade_recovery_replayed", "Revisions that the last recovery replayed.", last.revisions_replayed)
    yield gauge("palisade_recovery_bytes", "Bytes that the last recovery fetched.", last.bytes_fetched)
    yield gauge("palisade_recovery_snapshots", "Snapshots that the last recovery took.", last.snapshots)
    yield gauge("palisade_recovery_waits", "How often it could not reach the metadata store.", last.waits)
    keys, resources = asdict(last.keys).items(), asdict(last.resources).items()
    yield gauges("palisade_recovery_keys", "Keys of the vault by the effect of snapshots on them.", "what", keys)
    yield gauges("palisade_recovery_resources", "Local data by the effect of evictions on them.", "what", resources)
