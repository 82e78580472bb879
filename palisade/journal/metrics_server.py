"""GET /metrics of one copy, for Prometheus."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from palisade.base.address import Address
from palisade.base.metrics import Histogram
from palisade.journal.errors import PortUnusable
from palisade.journal.metrics import JournalMetrics
from palisade.journal.role import RoleRunner


@asynccontextmanager
async def served_metrics(runner: RoleRunner, syncs: Histogram, at: Address) -> AsyncIterator[None]:
    """Raises PortUnusable."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(JournalMetrics(runner, syncs))

    async def scrape(_request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes([web.get("/metrics", scrape)])
    server = web.AppRunner(app, access_log=None)
    await server.setup()
    try:
        await web.TCPSite(server, at.host, at.port).start()
    except OSError as error:
        await server.cleanup()
        raise PortUnusable(f"cannot listen on {at}: {error.strerror}; free it, or give another --metrics") from error
    try:
        yield
    finally:
        await server.cleanup()
