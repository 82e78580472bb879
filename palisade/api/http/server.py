"""The HTTP server of a node: the fast path and aiohttp on one port."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Middleware

from palisade.api.cluster_view import not_ready
from palisade.api.http.authorization import AuthorizationGate
from palisade.api.http.authorization_header import caller_of
from palisade.api.http.etcd_api import EtcdApi
from palisade.api.http.etcd_errors import refused
from palisade.api.http.etcd_health import EtcdHealth
from palisade.api.http.etcd_stream import EtcdStreams
from palisade.api.http.fast_path import FastPathServer, HttpLimits
from palisade.api.http.feed import FeedRoutes
from palisade.api.http.health import Health
from palisade.api.http.listener import HttpListener, runner_of
from palisade.api.http.member_metrics import Exposition
from palisade.api.http.open_streams import STREAMS
from palisade.api.http.openapi_document import DocumentKind
from palisade.api.http.problems import errors_as_answers
from palisade.api.http.request_body import HTTP_LIMITS, read_body
from palisade.api.http.request_head import Hot, HttpReply, Unary
from palisade.api.http.route_permissions import RULES
from palisade.api.http.scenario_host import ScenarioHost
from palisade.api.http.v1_backup import Backups
from palisade.api.http.v1_catalog import CatalogRoutes
from palisade.api.http.v1_cluster import ClusterRoutes
from palisade.api.http.v1_fenced import FencedRoutes
from palisade.api.http.v1_fencing import FencingRoutes, RegionRoutes
from palisade.api.http.v1_keys import KeyPuts, Keys
from palisade.api.http.v1_login import LoginRoutes
from palisade.api.http.v1_realtime import RealtimeRoutes
from palisade.api.http.v1_recovery import RecoveryRoutes
from palisade.api.http.v1_scenarios import ScenarioRoutes
from palisade.api.http.v1_segment_copies import SegmentCopyRoutes
from palisade.api.http.v1_segments import SegmentChangeRoutes, SegmentLookupRoutes
from palisade.api.http.v1_topology import TopologyRoutes
from palisade.api.http.v1_watch import Watches
from palisade.api.permission_lookups import lookups_of
from palisade.api.segment_service import OwnSegmentStore, SegmentChanges, SegmentLookups
from palisade.api.services import NodeServices
from palisade.base.connection_limit import ConnectionLimit
from palisade.segments.local_segments import LocalSegments
from palisade.service.authorization.callers import Access
from palisade.service.ports import own_addresses
from palisade.service.regions import RegionAdmin

ETCD_PROGRESS_S = 60.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpServer:
    """`cluster` is the name of the cluster, `member` that of the node. Runs from `start` to `close`."""

    def __init__(
        self,
        services: NodeServices,
        cluster: str,
        member: str,
        *,
        limits: HttpLimits | None = None,
        progress_s: float = 10.0,
        room: ConnectionLimit | None = None,
        scenarios: ScenarioHost | None = None,
        segments: LocalSegments | None = None,
    ) -> None:
        self._services = services
        service = self._service = services.key_values
        self._gate = AuthorizationGate(services.authorizer, lookups_of(services))
        self._member = member
        self._segments = segments or LocalSegments()
        self._trace: Middleware | None = services.trace
        self._scenarios = scenarios or ScenarioHost()
        self._room = room or ConnectionLimit(service.metrics)
        self._limits = limits or HttpLimits(body_bytes_max=body_bytes_for(service.store.limits.request_bytes_max))
        self.api = EtcdApi(service, cluster, member)
        self._fenced = FencedRoutes(services.fenced)
        self._keys = KeyPuts(service)
        self.app = self._application(cluster, progress_s)
        self.listener = HttpListener(runner_of(self.app, cancels_handlers=True))

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises OSError if the port cannot be bound."""
        await self.listener.start(self._make_fast_path, host, port)

    def _make_fast_path(self, server: Any) -> FastPathServer:
        service = self._service
        return FastPathServer(
            {} if self._trace else hot_paths(self.api.unary),
            server,
            self._limits,
            service.metrics,
            self._room,
            [] if self._trace else [self._fenced.hot, self._keys.hot],
            self._gate.callers,
            lambda: own_addresses(service.group),
        )

    @property
    def port(self) -> int:
        return self.listener.port

    async def close(self) -> None:
        """Stop listening, finish pending responses, end streams."""
        await self.listener.stop()
        await self.api.close()
        await self._scenarios.close()
        streams = self.app[STREAMS]
        for stream in list(streams):
            stream.cancel()
        await self.listener.end()

    def _application(self, cluster: str, progress_s: float) -> web.Application:
        app = web.Application(
            middlewares=[self._note, *([self._trace] if self._trace else []), errors_as_answers, self._gate.guard],
            client_max_size=self._limits.body_bytes_max,
        )
        app[HTTP_LIMITS] = self._limits
        app[STREAMS] = set()
        services, service = self._services, self._service
        reasons, metrics = partial(not_ready, services), Exposition(services, self._segments)
        app.add_routes(Health(DocumentKind.MEMBER, reasons, metrics, etcd=EtcdHealth(service, reasons)).routes())
        app.add_routes(LoginRoutes(service, services.authorizer, cluster).routes())
        app.add_routes(Keys(service).routes())
        app.add_routes(Watches(service, progress_s).routes())
        app.add_routes(ClusterRoutes(services, cluster).routes())
        app.add_routes(Backups(services, cluster).routes())
        app.add_routes(TopologyRoutes(services).routes())
        app.add_routes(RecoveryRoutes(lambda: services.vault).routes())
        app.add_routes(CatalogRoutes(services).routes())
        app.add_routes(FeedRoutes(service).routes())
        app.add_routes(SegmentCopyRoutes(self._member, self._segments).routes())
        app.add_routes(RealtimeRoutes(self._member, self._segments.realtime).routes())
        app.add_routes(SegmentLookupRoutes(SegmentLookups(services.broker)).routes())
        app.add_routes(SegmentChangeRoutes(SegmentChanges(OwnSegmentStore(service))).routes())
        app.add_routes(ScenarioRoutes(self._scenarios).routes())
        app.add_routes(FencingRoutes(services.fencing_view).routes())
        app.add_routes(RegionRoutes(RegionAdmin(service)).routes())
        app.add_routes(self._fenced.routes())
        app.add_routes(EtcdStreams(service, self.api, progress_s=ETCD_PROGRESS_S).routes())
        app.add_routes([web.post(path, unary_handler(call)) for path, call in self.api.unary.items()])
        return app

    @web.middleware
    async def _note(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Notifies the fast path, and counts responses."""
        with self.listener.handling(request):
            response = await handler(request)
            self._service.metrics.answered(response.status)
            return response


def body_bytes_for(request_bytes_max: int) -> int:
    """How large a body must be allowed to be so that the largest request fits as base64 in JSON."""
    return request_bytes_max * 3 // 2 + 64 * 1024


def hot_paths(unary: Mapping[str, Unary]) -> dict[str, Hot]:
    """The unary paths of etcd that are served without aiohttp: those whose rule in `route_permissions.py` is an
    `Access`."""
    found = {}
    for path, call in unary.items():
        rule = RULES.get(("POST", path))
        if isinstance(rule, Access):
            found[path] = Hot(f"POST {path}", call, rule, refuse)
    return found


def refuse(error: Exception, reply: HttpReply) -> None:
    reply(*refused(error))


def unary_handler(call: Unary) -> Handler:
    """A unary path of etcd, for connections that aiohttp handles."""

    async def handle(request: web.Request) -> web.StreamResponse:
        body = await read_body(request)
        answered: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()

        def reply(status: int, payload: bytes, _: bytes = b"", /) -> None:
            if not answered.done():
                answered.set_result((status, payload))

        call(body, reply, caller_of(request))
        status, payload = await answered
        headers = {"Retry-After": "1"} if status == 503 else None
        return web.Response(status=status, body=payload, content_type="application/json", headers=headers)

    return handle
