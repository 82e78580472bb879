"""A node that is no member of the Raft group: it finds the cluster, joins the topology, and keeps a vault.

A cluster can have any number of followers. A follower costs the group the feed of changes, which any member serves. It
serves its own state over HTTP, and data only to readers of its vault.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from palisade.api.http.scenario_host import Playable, ScenarioHost
from palisade.base.address import is_loopback
from palisade.node.authorization import authorizer_of, proof_of
from palisade.node.component_adapters import Background, ServerPart, TopologyComponent, cause_of_failure
from palisade.node.config import NodeConfig
from palisade.node.fencing.fencing_component import FencingComponent, HolderNode, ReleaseComponent
from palisade.node.fencing.follower_route import FollowerRoute
from palisade.node.fencing.metric_families import fencing_families
from palisade.node.fencing.view import fencing_view
from palisade.node.follower_server import FollowerServer, FollowerServices
from palisade.node.host import Host
from palisade.node.local_configuration import local_configuration
from palisade.node.segments_wiring import with_broker, with_segments
from palisade.node.tracing import trace_of
from palisade.recovery.catchup import Difference
from palisade.recovery.lifecycle import ComponentFailed, Lifecycle, Part
from palisade.recovery.vault_component import OnVault, RecoveryClock, VaultComponent
from palisade.service.authorization.remote_rows import RemoteRows
from palisade.service.authorization.rows import FencedRows
from palisade.service.cluster_fallback import asks_a_member
from palisade.service.fenced_reads import FencedReads
from palisade.topology.known_nodes import http_of_voters
from palisade.topology.logical_copy import LogicalCopy
from palisade.topology.member import JoinCandidate, TopologyMember
from palisade.topology.physical import PhysicalTopology
from palisade.topology.records import NodeRole
from palisade.topology.registrar import ClusterState
from palisade.topology.topology import Topology
from palisade.vault.vault import Vault

log = logging.getLogger(__name__)


class FollowerNode:
    """`start`, then `wait` until it fails or is cancelled, then `stop`."""

    def __init__(
        self,
        config: NodeConfig,
        on_vault: OnVault | None = None,
        machine: Host | None = None,
        scenarios: Sequence[Playable] = (),
    ) -> None:
        """`scenarios`: those that the node runs on request. Raises FolderError, DataDirectoryError."""
        self.config = config
        self._machine = machine = machine or Host(config)
        self._is_new = machine.claim()
        self._unlock = machine.lock()
        self._clock = machine.clock
        physical = PhysicalTopology(config.own_node(), NodeRole.FOLLOWER)
        self._registrar = machine.registrar(self._members)
        self._source = machine.source(self._members)
        on_vault, self.segments = with_segments(machine, physical.records, on_vault or OnVault())
        on_vault, self.broker = with_broker(on_vault, self._vault, self._reads, machine.clock.now)
        member = TopologyMember(
            lambda: self._registrar,
            JoinCandidate(
                config.id,
                NodeRole.FOLLOWER,
                physical.instance,
                config.cluster,
                config.join_token,
                {**config.advertised(), "swim": config.swim_advertised()},
            ),
            recover=self._recover,
            cluster_id=lambda: self.keeper.cluster_id,
            refusal=physical.refusal,
        )
        home = machine.vault()
        node = HolderNode(config.id, home.vault_id, member.incarnation, proof_of(config))
        self.fencing = FencingComponent(
            node, FollowerRoute(physical), self._clock, config.fencing.timing(), ask=asks_a_member(self._registrar.ask)
        )
        self.keeper = VaultComponent(
            home,
            config.id,
            self._source,
            replace(on_vault, fence=self.fencing),
            RecoveryClock(machine.clock, gentle=False),
            Difference(config.catch_up_difference),
            local=local_configuration(config),
        )
        logical = LogicalCopy(self._registrar.nodes, machine.clock.now)
        self.topology = Topology(physical, None, member, logical.rows, logical.refresh, logical.age_s)
        host = ScenarioHost(scenarios, config.scenarios or is_loopback(config.http.host))
        self.authorizer = authorizer_of(config, FencedRows(self.fencing.reads, RemoteRows(self._registrar.ask)))
        self._http = machine.http(lambda: FollowerServer(config, self._services(host)))
        self._life = Lifecycle(self._parts())

    def _vault(self) -> Vault:
        return self.keeper.vault

    def _reads(self) -> FencedReads:
        return self.fencing.reads

    def _services(self, scenarios: ScenarioHost) -> FollowerServices:
        return FollowerServices(
            self.topology,
            self.keeper,
            scenarios,
            self._members,
            segments=self.segments.local,
            fencing_view=self._fencing_view,
            fencing_families=lambda: fencing_families(self.fencing, self._clock.now()),
            fenced=self.fencing.reads,
            authorizer=self.authorizer,
            cluster_id=lambda: self.keeper.cluster_id,
            broker=self.broker,
            trace=trace_of(self.config, self._clock.now),
        )

    def _fencing_view(self) -> dict[str, Any]:
        return fencing_view(self.fencing, self._clock.now())

    def _members(self) -> list[str]:
        return http_of_voters(self.topology.physical.records(), self.config.own_node())

    async def _recover(self, state: ClusterState) -> int:
        return await self.keeper.catch_up()

    def _parts(self) -> list[Part]:
        config, physical = self.config, self.topology.physical
        parts = [
            Part("vault", self.keeper),
            Part("physical", physical, ("vault",)),
            Part("releases", ReleaseComponent(self.fencing), ("vault",)),
            Part("http", ServerPart(self._http, config.http), ("vault", "releases")),
            Part("fencing", self.fencing, ("vault", "physical", "http")),
        ]
        join = config.join
        if join is not None:
            parts.append(Part("seeds", Background(lambda: self._machine.find_seeds(physical, join)), ("physical",)))
        return [*parts, Part("topology", TopologyComponent(self.topology.member), ("vault", "physical", "fencing"))]

    async def start(self) -> None:
        """Raises if a port cannot be bound or the vault is refused; `stop` must be called even then."""
        with cause_of_failure():
            await self._life.start()
        log.info(
            "following a cluster: node=%s cluster=%s http=%s", self.config.id, self.config.cluster, self.config.http
        )

    async def wait(self) -> None:
        """Until a component fails; raises its error."""
        with cause_of_failure():
            await self._life.wait()

    async def stop(self) -> None:
        """Safe to call in any state. A new folder of a node that no cluster has admitted is free again afterwards."""
        with contextlib.suppress(ComponentFailed):
            await self._life.stop()
        await self._registrar.close()
        await self._source.close()
        await self.segments.close()
        if self._is_new and self.topology.member.life.incarnation == 0:
            self._machine.release()
        self._unlock()
