"""GET /metrics of one copy, for Prometheus."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from palisade.base.address import Address
from palisade.base.metrics import Histogram
from palisade.base.network_reason import reason_of
from palisade.base.wrong_port import CODE
from palisade.journal.errors import PortUnusable
from palisade.journal.metrics import JournalMetrics
from palisade.journal.role import RoleRunner

ONLY_METRICS = (
    "this is the metrics port of a journal copy, which has GET /metrics only: use the HTTP API port of a node, or the "
    "address of the copy"
)


@asynccontextmanager
async def served_metrics(runner: RoleRunner, syncs: Histogram, at: Address) -> AsyncIterator[None]:
    """Raises PortUnusable."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(JournalMetrics(runner, syncs))

    async def scrape(_request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()

    async def refuse(_request: web.Request) -> web.Response:
        problem = {"type": "about:blank", "title": "Wrong port", "status": 421, "code": CODE, "detail": ONLY_METRICS}
        return web.json_response({**problem, "retry": False}, status=421, content_type="application/problem+json")

    app.add_routes([web.get("/metrics", scrape), web.route("*", "/{path:.*}", refuse)])
    server = web.AppRunner(app, access_log=None)
    await server.setup()
    try:
        await web.TCPSite(server, at.host, at.port).start()
    except OSError as error:
        await server.cleanup()
        raise PortUnusable(f"can't listen on {at}: {reason_of(error)}; free it, or give another --metrics") from error
    try:
        yield
    finally:
        await server.cleanup()
