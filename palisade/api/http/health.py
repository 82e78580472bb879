"""/livez, /readyz, /metrics, /openapi.json: served by every kind of node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from palisade.api.http.etcd_health import EtcdHealth, text_of
from palisade.api.http.openapi_document import DocumentKind, document_of
from palisade.api.http.v1_keys import answer
from palisade.topology.topology import nothing_to_refresh


class Health:
    """`not_ready`: the reasons why the node should not get requests now. `refresh`: before the metrics are read.

    `etcd`: the checks that `?verbose` lists as etcd does; None on a node that does not serve etcd's paths."""

    def __init__(
        self,
        kind: DocumentKind,
        not_ready: Callable[[], list[str]],
        metrics: Collector,
        refresh: Callable[[], Awaitable[None]] = nothing_to_refresh,
        etcd: EtcdHealth | None = None,
    ) -> None:
        self._not_ready, self._refresh, self._etcd = not_ready, refresh, etcd
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(metrics)
        self._openapi = document_of(kind)

    def routes(self) -> list[web.RouteDef]:
        return [
            *(self._etcd.routes() if self._etcd is not None else ()),
            web.get("/livez", self.live),
            web.get("/readyz", self.ready),
            web.get("/metrics", self.metrics),
            web.get("/openapi.json", self.openapi),
        ]

    async def live(self, request: web.Request) -> web.Response:
        """Whether the process answers, whatever the state of the cluster."""
        if self._etcd is not None and "verbose" in request.query:
            return await text_of(self._etcd.live, request)
        return answer({"live": True})

    async def ready(self, request: web.Request) -> web.Response:
        if self._etcd is not None and "verbose" in request.query:
            return await text_of(self._etcd.ready, request)
        reasons = self._not_ready()
        return answer({"ready": not reasons, "reasons": reasons}, 503 if reasons else 200)

    async def metrics(self, request: web.Request) -> web.Response:
        await self._refresh()
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def openapi(self, request: web.Request) -> web.Response:
        return web.Response(body=self._openapi, content_type="application/json")
