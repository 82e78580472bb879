"""/livez, /readyz, /metrics, /openapi.json."""

from __future__ import annotations

import json
from importlib import resources

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from node.cluster_view import not_ready
from node.http.exposition import Exposition
from node.http.v1_keys import answer
from node.service import Service


class Health:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(Exposition(service))
        self._openapi = resources.files("node").joinpath("openapi.json").read_bytes()

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/livez", self.live),
            web.get("/readyz", self.ready),
            web.get("/metrics", self.metrics),
            web.get("/openapi.json", self.openapi),
        ]

    async def live(self, request: web.Request) -> web.Response:
        """The process answers; nothing is said about the cluster."""
        return answer({"live": True})

    async def ready(self, request: web.Request) -> web.Response:
        reasons = not_ready(self._service)
        return answer({"ready": not reasons, "reasons": reasons}, 503 if reasons else 200)

    async def metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def openapi(self, request: web.Request) -> web.Response:
        return web.Response(body=self._openapi, content_type="application/json")

    @property
    def document(self) -> object:
        return json.loads(self._openapi)
