"""A node with authorization on, over the group of one of the other tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from aiohttp import ClientSession, ClientTimeout

from palisade.api.http.server import HttpServer
from palisade.api.services import NodeServices
from palisade.api.stream.server import StreamServer
from palisade.service.authorization.authorizer import Authorizer
from palisade.service.key_values import KeyValues
from tests.support.hand_clock import Clock
from tests.support.permission_world import FenceableRows, Users, gate_over, usual


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def users(service: KeyValues) -> Users:
    found = Users(service)
    await usual(found)
    return found


@pytest.fixture
async def rows(service: KeyValues) -> FenceableRows:
    return FenceableRows(service)


@pytest.fixture
async def authorizer(rows: FenceableRows, clock: Clock, users: Users) -> AsyncIterator[Authorizer]:
    found = gate_over(rows, clock)
    yield found
    found.close()


@pytest.fixture
async def server(services: NodeServices, authorizer: Authorizer) -> AsyncIterator[HttpServer]:
    running = HttpServer(replace(services, authorizer=authorizer), "demo", "n1", progress_s=0.05)
    await running.start("127.0.0.1", 0)
    yield running
    await running.close()


@pytest.fixture
async def http(server: HttpServer) -> AsyncIterator[ClientSession]:
    async with ClientSession(f"http://127.0.0.1:{server.port}", timeout=ClientTimeout(total=10)) as session:
        yield session


@pytest.fixture
async def stream(services: NodeServices, authorizer: Authorizer) -> AsyncIterator[StreamServer]:
    running = StreamServer(replace(services, authorizer=authorizer), "demo", hello_timeout_s=2.0)
    await running.start("127.0.0.1", 0)
    yield running
    await running.close()
