"""The HTTP API of a follower: its own state, its view of the topology, its recoveries, scenarios."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Middleware
from prometheus_client.core import Metric

from palisade.api.fencing_status_line import short_view
from palisade.api.http.broker_families import broker_families
from palisade.api.http.health import Health
from palisade.api.http.openapi_document import DocumentKind
from palisade.api.http.realtime_families import realtime_families
from palisade.api.http.scenario_host import ScenarioHost
from palisade.api.http.segment_families import segment_families
from palisade.api.http.v1_fenced import FencedRoutes
from palisade.api.http.v1_fencing import FencingRoutes, RegionReads, View
from palisade.api.http.v1_keys import answer
from palisade.api.http.v1_login import SignInRoute
from palisade.api.http.v1_realtime import RealtimeRoutes
from palisade.api.http.v1_scenarios import ScenarioRoutes
from palisade.api.http.v1_segment_copies import SegmentCopyRoutes
from palisade.api.http.v1_segments import SegmentLookupRoutes
from palisade.api.http.vault_metrics import VaultExposition
from palisade.api.http.vault_server import VaultServer
from palisade.api.segment_service import SegmentLookups
from palisade.node.config import NodeConfig
from palisade.recovery.report_json import progress_view
from palisade.recovery.status import RecoveryStatus
from palisade.segments.broker import SegmentBroker
from palisade.segments.local_segments import LocalSegments
from palisade.service.authorization.authorizer import Authorizer
from palisade.service.fenced_reads import FencedReads
from palisade.service.regions import FencedRegions
from palisade.topology.topology import Topology
from palisade.wire.error_codes import NoMember


@dataclass(frozen=True, slots=True)
class FollowerServices:
    """The parts from which the server of a follower serves, as `NodeServices` of a member: built once, immutable.

    `vault`: the progress of its recoveries. `members`: HTTP addresses of members that serve the other paths.
    `segments`: empty if the node stores none. `fencing_view`, `fencing_families`: the fencing state of the node as
    JSON and as metrics. `fenced`: reads of the node's own vault. `authorizer`: None if every client may do everything.
    `cluster_id`: of the vault, empty while it has none. `broker`: answers lookups of segments.
    `trace`: traces requests.
    """

    topology: Topology
    vault: RecoveryStatus
    scenarios: ScenarioHost
    members: Callable[[], Sequence[str]]
    segments: LocalSegments = field(default_factory=LocalSegments)
    fencing_view: View | None = None
    fencing_families: Callable[[], Iterable[Metric]] = tuple
    fenced: FencedReads = field(default_factory=FencedReads)
    authorizer: Authorizer | None = None
    cluster_id: Callable[[], str] = str
    broker: SegmentBroker | None = None
    trace: Middleware | None = None


class FollowerServer:
    """Serves `services` on one port."""

    def __init__(self, config: NodeConfig, services: FollowerServices) -> None:
        self._topology = topology = services.topology
        self._scenarios = services.scenarios
        recovery, segments, fencing = services.vault, services.segments, services.fencing_view
        fenced_routes = FencedRoutes(services.fenced)

        def reasons() -> list[str]:
            return not_active(topology)

        def more() -> list[Metric]:
            own = (*segment_families(segments.holder), *realtime_families(segments.realtime))
            return [*services.fencing_families(), *own, *broker_families(services.broker)]

        metrics = VaultExposition(config.id, lambda: not reasons(), recovery, topology, more)
        self._server = VaultServer(
            Health(DocumentKind.FOLLOWER, reasons, metrics, topology.refresh),
            lambda: follower_status(config, services),
            recovery,
            [
                web.get("/v1/topology", self._view, allow_head=False),
                *SignInRoute(config.cluster, services.cluster_id, authorizes=services.authorizer is not None).routes(),
                *SegmentCopyRoutes(config.id, segments).routes(),
                *RealtimeRoutes(config.id, segments.realtime).routes(),
                *SegmentLookupRoutes(SegmentLookups(services.broker)).routes(),
                *ScenarioRoutes(services.scenarios).routes(),
                *FencingRoutes(fencing).routes(),
                *fenced_routes.routes(),
                *RegionReads(FencedRegions(services.fenced)).routes(),
            ],
            lambda what: no_member(what, services.members()),
            [fenced_routes.hot],
            services.authorizer,
            trace=services.trace,
        )
        self.app = self._server.app

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises OSError if the port cannot be bound."""
        await self._server.start(host, port)

    @property
    def port(self) -> int:
        return self._server.port

    async def close(self) -> None:
        await self._scenarios.close()
        await self._server.close()

    async def _view(self, request: web.Request) -> web.Response:
        await self._topology.refresh()
        return answer(self._topology.view())


def not_active(topology: Topology) -> list[str]:
    """A node is ready while it is in the logical topology."""
    own = topology.own_view()
    waiting = f": {own['waiting_for']}" if own["waiting_for"] else ""
    return [] if topology.is_active else [f"{own['phase']}{waiting}"]


def no_member(what: str, members: Sequence[str]) -> NoMember:
    known = (
        f"a member, such as {members[0]}" if members else "a member of the cluster (this node knows none at the moment)"
    )
    return NoMember(
        f"{what} is not served by a follower, which has no copy of the metadata store: ask {known}; "
        "GET /openapi.json lists the paths of this node"
    )


def follower_status(config: NodeConfig, services: FollowerServices) -> dict[str, Any]:
    """Shape `FollowerStatus` of the API: the status of a follower. `revision` is LV."""
    view = services.fencing_view
    return {
        "cluster": config.cluster,
        "cluster_id": services.cluster_id() or None,
        "member": config.id,
        "authorization": "on" if config.authorizes else "off",
        "role": "follower-node",
        "ready": services.topology.is_active,
        "revision": services.vault.revision,
        "topology": services.topology.own_view(),
        "recovery": progress_view(services.vault),
        "fencing": short_view(view() if view is not None else None),
    }
