"""A member of the Raft group in one process: wires all components, starts them in order and stops them in reverse.

`raft/` in the data folder is the journal of the group, `store/` the state that it replicates. If a component fails
whose state cannot be trusted any more, the node stops at once and reports why; it never runs partially.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

from palisade.api.cluster_view import group_not_ready
from palisade.api.http.scenario_host import Playable, ScenarioHost
from palisade.api.http.server import HttpServer
from palisade.api.segment_service import OwnSegmentStore
from palisade.api.services import NodeServices
from palisade.api.stream.server import StreamServer
from palisade.base.address import is_loopback
from palisade.base.connection_limit import ConnectionLimit
from palisade.base.metrics import Metrics
from palisade.metastore.limits import Limits, Retention
from palisade.metastore.state_machine import MetaStore
from palisade.node.authorization import authorizer_of, proof_of
from palisade.node.component_adapters import Background, GroupPart, ServerPart, TopologyComponent, cause_of_failure
from palisade.node.config import NodeConfig
from palisade.node.fencing.fencing_component import HolderNode, ReleaseComponent
from palisade.node.fencing.member_fencing import MemberFencing, strict_answers
from palisade.node.fencing.metric_families import fencing_families
from palisade.node.fencing.view import fencing_view
from palisade.node.host import Host
from palisade.node.local_configuration import local_configuration
from palisade.node.segments_wiring import with_broker, with_segments
from palisade.node.state_machine_adapter import StoreMachine
from palisade.node.tracing import trace_of
from palisade.raftgroup.group import Group
from palisade.raftgroup.group_config import GroupConfig, GroupEvents
from palisade.raftgroup.log_retention import LogRetention
from palisade.raftgroup.timing import RaftTiming
from palisade.recovery.catchup import Difference
from palisade.recovery.flush_follower import FlushFollower
from palisade.recovery.lifecycle import ComponentFailed, Lifecycle, Part
from palisade.recovery.vault_component import OnVault, RecoveryClock, VaultComponent
from palisade.recovery.vault_storage import VaultHome
from palisade.segments.coordinator import SegmentCoordinator
from palisade.service.authorization.bootstrap import FirstUser, password_in
from palisade.service.authorization.rows import FencedRows, StoreRows
from palisade.service.catalog import Catalog
from palisade.service.catalog_store import CatalogReleases
from palisade.service.fenced_reads import FencedReads
from palisade.service.housekeeping import do_leader_duties
from palisade.service.key_values import KeyValues
from palisade.service.local_source import local_source
from palisade.topology.address_announcement import announce_addresses
from palisade.topology.known_nodes import http_of_voters, known_seeds
from palisade.topology.member import JoinCandidate, RegistrarPort, TopologyMember
from palisade.topology.physical import PhysicalTopology
from palisade.topology.records import NodeRole
from palisade.topology.registrar import ClusterState, Registrar
from palisade.topology.topology import Topology
from palisade.topology.view import logical_view, nodes_of
from palisade.vault.vault import Vault

log = logging.getLogger(__name__)

READY_POLL_S = 0.05
SWITCH_INTERVAL_S = 0.0005
"""How long the event loop may hold the interpreter's lock before the threads that commit get it."""


class Node:
    """One member of a cluster, in this process. `start`, then `wait` until it fails or is cancelled, then `stop`."""

    def __init__(
        self,
        config: NodeConfig,
        files_max: int | None = None,
        machine: Host | None = None,
        scenarios: Sequence[Playable] = (),
    ) -> None:
        """Opens the data folder. Raises the error that refuses it (FolderError, DataDirectoryError, StoreCorrupt ...).

        `files_max`: how many files the process may have open. `machine`: a replacement of the real machine.
        `scenarios`: those that the node runs on request.
        """
        self.config = config
        self.metrics = Metrics()
        self._machine = machine or Host(config)
        self._clock = self._machine.clock
        self._is_new = self._machine.claim()
        with contextlib.ExitStack() as undo:
            self._journal = self._machine.journal()
            undo.callback(self._journal.close)
            self._disk = self._machine.store()
            undo.callback(self._disk.close)
            self.store = MetaStore(self._disk, _limits(config), _retention(config))
            self.group = self._make_group()
            undo.pop_all()
        strict = strict_answers(self.store, self._clock.now, lambda: self.fencing)
        self.key_values = KeyValues(
            self.group, self.store, deadline_s=config.timing.request_deadline_s, metrics=self.metrics, strict=strict
        )
        password = password_in(config.root_password_file) if config.root_password_file else None
        self._first_user = FirstUser(self.key_values, password)
        self.topology = self._make_topology()
        on_vault, self.segments = with_segments(self._machine, self.topology.physical.records, OnVault())
        on_vault, self.broker = with_broker(on_vault, self._vault, self._reads, self._clock.now)
        home = self._machine.vault()
        self.fencing: MemberFencing = MemberFencing(
            HolderNode(config.id, home.vault_id, self.topology.member.incarnation, proof_of(config)),
            self.key_values,
            strict,
            self.group,
            self._clock,
            config.fencing.timing(),
        )
        self.keeper: VaultComponent = self._make_keeper(home, on_vault)
        releases = CatalogReleases(self.fencing.until_released, self.fencing.waiting_for)
        self.catalog = Catalog(self.key_values, config.id, releases)
        self.services = self._make_services()
        room = ConnectionLimit(self.metrics, files_max)
        self._stream = StreamServer(self.services, config.cluster, room=room, lease_port=self.fencing.lease_endpoint)
        host = ScenarioHost(scenarios, config.scenarios or is_loopback(config.http.host))
        self._http = self._machine.http(lambda: self._make_http(room, host))
        self._life = Lifecycle(self._parts())

    def _vault(self) -> Vault:
        return self.keeper.vault

    def _reads(self) -> FencedReads:
        return self.fencing.part.reads

    def _make_http(self, room: ConnectionLimit, scenarios: ScenarioHost) -> HttpServer:
        return HttpServer(
            self.services,
            self.config.cluster,
            self.config.id,
            room=room,
            scenarios=scenarios,
            segments=self.segments.local,
        )

    def _make_group(self) -> Group:
        config = self.config
        return Group(
            GroupConfig(
                cluster=config.cluster,
                member=config.id,
                addresses=config.advertised(),
                founders={member.id: member.addresses() for member in config.initial_cluster},
                terms=self.store.limits.fingerprint(),
                timing=_timing(config),
                retention=LogRetention(config.retention.log_entries),
            ),
            journal=self._journal,
            machine=StoreMachine(self.store, self._disk),
            peers=self._machine.peers(),
            clock=self._clock,
            random=self._machine.random,
            events=GroupEvents(
                synced=self.metrics.fsync_latency.observe,
                led=lambda leads, term: self.fencing.led(leads, term),
                removed=lambda: self.fencing.part.removed(),
            ),
        )

    def _make_keeper(self, home: VaultHome, on_vault: OnVault) -> VaultComponent:
        """The store calls `released` first: the gate knows a strict change before the vault can take it."""
        config = self.config
        source = local_source(self.key_values, config.id)
        beside = FlushFollower(self.store, source)
        self.store.listen(self.fencing.released, beside)
        return VaultComponent(
            home,
            config.id,
            source,
            replace(on_vault, fence=self.fencing.part),
            RecoveryClock(self._clock, gentle=True),
            Difference(config.catch_up_difference, beside.reach),
            beside,
            local=local_configuration(config),
        )

    def _make_services(self) -> NodeServices:
        part, participant = self.fencing.part, self._machine.participant()
        rows = FencedRows(part.reads, StoreRows(self.key_values))
        return NodeServices(
            self.key_values,
            open_snapshot=self._disk.open_snapshot,
            participant=lambda: participant,
            vault=self.keeper,
            topology=self.topology,
            catalog=self.catalog,
            fencing_view=lambda: fencing_view(part, self._clock.now(), self.fencing),
            fencing_families=lambda: fencing_families(part, self._clock.now(), self.fencing),
            fenced=part.reads,
            authorizer=authorizer_of(self.config, rows, self._first_user.no_user),
            first_user=self._first_user if self.config.authorizes else None,
            broker=self.broker,
            trace=trace_of(self.config, self._clock.now),
        )

    def _coordinator(self) -> SegmentCoordinator:
        store = OwnSegmentStore(self.key_values)
        return SegmentCoordinator(self.broker, store, self.group, self._clock.now)

    def _make_topology(self) -> Topology:
        config, store = self.config, self.store
        physical = PhysicalTopology(config.own_node(), NodeRole.VOTER)
        physical.add_seeds(known_seeds(nodes_of(store.system)))
        self.registrar = Registrar(self.key_values, config.cluster, physical.presences, config.join_token)
        self._remote = self._machine.registrar(lambda: http_of_voters(physical.records(), config.own_node()))
        member = TopologyMember(
            self._registrar_now,
            JoinCandidate(
                config.id,
                NodeRole.VOTER,
                physical.instance,
                config.cluster,
                config.join_token,
                {**config.advertised(), "swim": config.swim_advertised()},
            ),
            recover=self._recover,
            cluster_id=lambda: store.lineage.cluster_id,
            refusal=physical.refusal,
        )
        return Topology(
            physical,
            self.registrar,
            member,
            lambda: (logical_view(store.system), store.system.version),
            removed=lambda: self.fencing.part.was_removed,
        )

    def _registrar_now(self) -> RegistrarPort:
        """A node that is not yet a member of the group has to ask a member: it is admitted to the topology first and
        added to the group afterwards."""
        member = self.group.members.get(self.config.id)
        is_member = member is not None and member.incarnation == self.group.incarnation
        return self.registrar if is_member or self.config.join is None else self._remote

    async def _recover(self, state: ClusterState) -> int:
        """Joins the group first: the vault of a member follows its own replica."""
        await self._machine.enter(self.group)
        while group_not_ready(self.key_values):  # noqa: ASYNC110
            await asyncio.sleep(READY_POLL_S)
        self.topology.physical.settle()
        return await self.keeper.catch_up()

    def _parts(self) -> list[Part]:
        """Dependencies between components; the order of start and stop follows from them."""
        config, topology = self.config, self.topology
        parts = [
            Part("store", Background(lambda: self._disk.run(self._clock.now))),
            Part("group", GroupPart(self.group), ("store",)),
            Part("duties", Background(lambda: do_leader_duties(self.group, self.store, self._clock)), ("group",)),
            Part("coordinator", Background(self._coordinator().run), ("group", "vault")),
            Part("procedures", Background(self.catalog.runner.run), ("group",)),
            Part("addresses", Background(lambda: announce_addresses(config.own_node(), self.group)), ("group",)),
            Part("vault", self.keeper, ("group",)),
            Part("physical", topology.physical),
            Part("registrar", Background(self.registrar.watch), ("group", "physical")),
            Part("releases", ReleaseComponent(self.fencing.part), ("vault",)),
            Part("stream", ServerPart(self._stream, config.stream), ("group", "registrar", "releases")),
            Part("http", ServerPart(self._http, config.http), ("group", "registrar", "releases")),
        ]
        if self.services.authorizer is not None:
            parts.append(Part("first user", Background(self._first_user.run), ("group",)))
        join = config.join
        if join is not None:
            parts.append(
                Part(
                    "seeds",
                    Background(lambda: self._machine.find_seeds(topology.physical, join)),
                    ("physical",),
                )
            )
        parts += [
            Part("holders", Background(self.fencing.registry.run), ("group",)),
            Part("fencing", self.fencing.part, ("vault", "stream", "http", "holders")),
        ]
        return [*parts, Part("topology", TopologyComponent(topology.member), ("registrar", "fencing"))]

    async def start(self) -> None:
        """Start all components. Raises if a port cannot be bound; `stop` must be called even then."""
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        with self._first_cause(), cause_of_failure():
            await self._life.start()
        log.info("serving: node=%s http=%s stream=%s", self.config.id, self.config.http, self.config.stream)

    async def wait(self) -> None:
        """Until a component fails; raises its error."""
        with self._first_cause(), cause_of_failure():
            await self._life.wait()

    @contextlib.contextmanager
    def _first_cause(self) -> Iterator[None]:
        """A stopped group takes down its dependents: the error of the group is the one to raise."""
        try:
            yield
        except Exception:
            failed = self.group.failed
            if failed is not None and failed.done():
                failed.result()
            raise

    def _was_never_admitted(self) -> bool:
        """A joining node is added to the group only after the topology has admitted it. The storage of a founding
        member may be pinned by others as soon as it has started."""
        admitted = self.topology.member.life.incarnation > 0 or self.group.members.members
        return self.config.join is not None and not admitted

    async def stop(self) -> None:
        """Refuse new requests, hand leadership over, flush, close. Safe to call in any state.

        A new folder of a joining node that no cluster has admitted is free again afterwards: it was added to no group.
        """
        with contextlib.suppress(ComponentFailed):
            await self._life.stop()
        try:
            await self._disk.flush()
        except Exception as error:
            log.warning("store not flushed, the journal has the missing entries: error=%s", error)
        await self._remote.close()
        if self.services.authorizer is not None:
            self.services.authorizer.close()
        await self.segments.close()
        self._disk.close()
        if self._is_new and self._was_never_admitted():
            self._machine.release()
        self._journal.close()


def _timing(config: NodeConfig) -> RaftTiming:
    timing = config.timing
    return RaftTiming(
        heartbeat_s=timing.heartbeat_ms / 1000,
        election_timeout_min_s=timing.election_min_ms / 1000,
        election_timeout_max_s=timing.election_max_ms / 1000,
    )


def _limits(config: NodeConfig) -> Limits:
    limits = config.limits
    return Limits(
        key_bytes_max=limits.key_bytes,
        value_bytes_max=limits.value_bytes,
        request_bytes_max=limits.request_bytes,
        txn_operations_max=limits.txn_operations,
        quota_bytes=limits.quota_bytes,
    )


def _retention(config: NodeConfig) -> Retention:
    kept = config.retention
    return Retention(
        history_age_ms=kept.seconds * 1000, history_revisions=kept.revisions, hold_revisions=kept.hold_revisions
    )
