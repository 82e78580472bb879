"""Two stores that have to agree: a real etcd, and a node of ours over a group in memory."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from aiohttp import ClientSession

import palisade.node.embedded
from palisade.api.http.server import HttpServer
from palisade.api.services import NodeServices
from palisade.service.key_values import KeyValues
from tests.differential.etcd_process import Etcd, require_etcd
from tests.support.fake_group import fake_group
from tests.support.hand_clock import Clock


@pytest.fixture(scope="session")
def etcd_binary() -> str:
    return require_etcd()


@pytest.fixture
def etcd(etcd_binary: str, tmp_path: Path) -> Iterator[Etcd]:
    process = Etcd(etcd_binary, tmp_path)
    yield process
    process.stop()


@pytest.fixture
async def theirs(etcd: Etcd) -> AsyncIterator[ClientSession]:
    await etcd.start()
    async with ClientSession(etcd.url) as session:
        yield session


@pytest.fixture(params=["memory", "disk"])
async def ours(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ClientSession]:
    """Over a group in memory, and over a real group of one with its journal and its store on disk."""
    async with contextlib.AsyncExitStack() as stack:
        if request.param == "memory":
            group = fake_group(clock=Clock())
            service = KeyValues(group, group.store)
        else:
            service = (await stack.enter_async_context(palisade.node.embedded.open(tmp_path / "ours"))).key_values
        server = HttpServer(NodeServices(service), "demo", "n1")
        await server.start("127.0.0.1", 0)
        stack.push_async_callback(server.close)
        yield await stack.enter_async_context(ClientSession(f"http://127.0.0.1:{server.port}"))
