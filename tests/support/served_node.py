"""A node without a cluster: a service over a group of one in memory, its HTTP and stream ports, a client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from aiohttp import ClientSession, ClientTimeout

from palisade.api.http.fast_path import HttpLimits
from palisade.api.http.scenario_host import ScenarioHost
from palisade.api.http.server import HttpServer
from palisade.api.services import NodeServices
from palisade.api.stream.server import StreamServer
from palisade.cli.scenarios.all import SCENARIOS
from palisade.client import Client
from palisade.client.sync_client import SyncClient
from palisade.service.catalog import Catalog
from palisade.service.key_values import KeyValues
from tests.support.fake_group import FakeGroup, fake_group
from tests.support.releases import ControlledReleases
from tests.support.store_broker import StoreBroker
from tests.support.threaded_node import ThreadedNode, threaded_node


@pytest.fixture
async def group() -> FakeGroup:
    return fake_group()


@pytest.fixture
async def service(group: FakeGroup) -> KeyValues:
    return KeyValues(group, group.store, deadline_s=0.3)


@pytest.fixture
async def services(service: KeyValues) -> AsyncIterator[NodeServices]:
    """With a catalog, whose procedures run."""
    catalog = Catalog(service, "n1", ControlledReleases())  # type: ignore[arg-type]
    running = asyncio.create_task(catalog.runner.run())
    yield NodeServices(service, catalog=catalog, broker=StoreBroker(service))
    running.cancel()
    await asyncio.wait({running})


@pytest.fixture
async def stream(services: NodeServices) -> AsyncIterator[StreamServer]:
    server = StreamServer(services, "demo", hello_timeout_s=0.2)
    await server.start("127.0.0.1", 0)
    yield server
    await server.close()


@pytest.fixture
async def client(stream: StreamServer) -> AsyncIterator[Client]:
    async with Client([f"127.0.0.1:{stream.port}"], follow_leader=False, timeout_s=3) as opened:
        yield opened


@pytest.fixture
async def server(services: NodeServices) -> AsyncIterator[HttpServer]:
    limits = HttpLimits(body_bytes_max=3 * 1024 * 1024 + 64 * 1024, head_timeout_s=0.3, body_timeout_s=0.4)
    running = HttpServer(services, "demo", "n1", limits=limits, progress_s=0.1, scenarios=ScenarioHost(SCENARIOS))
    await running.start("127.0.0.1", 0)
    yield running
    await running.close()


@pytest.fixture
async def http(server: HttpServer) -> AsyncIterator[ClientSession]:
    async with ClientSession(f"http://127.0.0.1:{server.port}", timeout=ClientTimeout(total=10)) as session:
        yield session


@pytest.fixture
def threaded() -> Iterator[ThreadedNode]:
    """A node in a thread of its own."""
    with threaded_node() as started:
        yield started


@pytest.fixture
def blocking(threaded: ThreadedNode) -> Iterator[SyncClient]:
    with SyncClient([threaded.address], follow_leader=False, timeout_s=5) as opened:
        yield opened


async def call(http: ClientSession, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
    """(status, JSON) of the response."""
    given = {"json": body} if body is not None else {}
    async with http.request(method, path, **given) as answer:
        found: dict[str, Any] = await answer.json(content_type=None)
        return answer.status, found
