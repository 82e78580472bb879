"""Two stores that have to agree: a real etcd, and a node of ours over a group in memory."""

from __future__ import annotations

import os
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from aiohttp import ClientSession

from node.http.server import HttpServer
from node.service import Service
from tests.differential.etcd_process import Etcd, find_etcd
from tests.support.fake_group import FakeClock, fake_group

MISSING = (
    "NOT COMPARED WITH ETCD: there is no 'etcd' on this machine. On Debian: apt-get install etcd-server. "
    "Where PALISADE_REQUIRE_ETCD is set, this is a failure."
)


@pytest.fixture(scope="session")
def etcd_binary() -> str:
    found = find_etcd()
    if found is not None:
        return found
    if os.environ.get("PALISADE_REQUIRE_ETCD"):
        pytest.fail(MISSING)
    warnings.warn(MISSING, stacklevel=1)
    pytest.skip(MISSING)


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


@pytest.fixture
async def ours() -> AsyncIterator[ClientSession]:
    group = fake_group(clock=FakeClock())
    server = HttpServer(Service(group, group.store), "demo", "n1")
    await server.start("127.0.0.1", 0)
    async with ClientSession(f"http://127.0.0.1:{server.port}") as session:
        yield session
    await server.close()
