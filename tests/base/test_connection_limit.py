"""Client connections leave enough file descriptors for the node; refused clients get a reason (scenarios.md,
"Everywhere": file descriptor limit, 10,000 idle connections).
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import AsyncIterator

import pytest

from palisade.api.http.server import HttpServer
from palisade.api.services import NodeServices
from palisade.api.stream.server import StreamServer
from palisade.base.connection_limit import LEAVING_MAX, Admission, ConnectionLimit, connections_for
from palisade.base.errors import ConfigError
from palisade.base.file_limit import raise_file_limit
from palisade.base.metrics import Metrics
from palisade.client import Client, Unavailable
from palisade.service.key_values import KeyValues
from tests.support.raw_http import RawHttp
from tests.support.waiting import until

FILES_FOR_FOUR = 44


@pytest.fixture
def room(service: KeyValues) -> ConnectionLimit:
    return ConnectionLimit(service.metrics, FILES_FOR_FOUR)


@pytest.fixture
async def server(service: KeyValues, room: ConnectionLimit) -> AsyncIterator[HttpServer]:
    running = HttpServer(NodeServices(service), "demo", "n1", room=room)
    await running.start("127.0.0.1", 0)
    yield running
    await running.close()


@pytest.fixture
async def stream(service: KeyValues, room: ConnectionLimit) -> AsyncIterator[StreamServer]:
    running = StreamServer(NodeServices(service), "demo", room=room)
    await running.start("127.0.0.1", 0)
    yield running
    await running.close()


def test_connection_limit_keeps_files_for_the_node() -> None:
    assert [connections_for(files) for files in (64, 96, 1024, 20_000)] == [24, 56, 768, 19_488]


def test_connection_limit_is_shared_by_both_ports_and_gives_few_clients_a_reason() -> None:
    metrics = Metrics()
    room = ConnectionLimit(metrics, FILES_FOR_FOUR)
    seen = []
    for number in range(4 + LEAVING_MAX + 1):
        metrics.http_connections += number % 2
        metrics.stream_connections += 1 - number % 2
        seen.append(room.admit(0.0))
    assert seen == [Admission.ACCEPT] * 4 + [Admission.REFUSE_WITH_REASON] * LEAVING_MAX + [Admission.CLOSE]
    assert metrics.connections_refused == LEAVING_MAX + 1


def test_refused_connections_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    metrics.http_connections = 5
    room = ConnectionLimit(metrics, FILES_FOR_FOUR)
    with caplog.at_level(logging.WARNING):
        for second in range(130):
            room.admit(float(second))
    assert len(caplog.records) == 3
    assert "limit of 44 open files" in caplog.text
    assert "LimitNOFILE" in caplog.text


@pytest.mark.parametrize(("path", "code"), [("/v1/status", "too-many-connections"), ("/v3/kv/range", 14)])
async def test_http_refusal_names_the_connection_limit(server: HttpServer, path: str, code: object) -> None:
    crowd = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(4)]
    async with RawHttp(server.port) as late:
        late.post(path, b"{}")
        status, answer = await late.json()
    assert (status, answer["code"]) == (503, code)
    assert "4 clients" in str(answer)
    for _, writer in crowd:
        writer.close()
    await until(lambda: server._service.metrics.http_connections == 0)
    async with RawHttp(server.port) as later:
        later.post("/v3/kv/range", b'{"key": "YQ=="}')
        assert (await later.json())[0] == 200
        later.send(b"GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n")
        assert b"\npalisade_connections_refused_total 1.0\n" in (await later.answer())[1]


async def test_stream_refusal_names_the_connection_limit(stream: StreamServer) -> None:
    endpoint = f"127.0.0.1:{stream.port}"
    crowd = [await asyncio.open_connection("127.0.0.1", stream.port) for _ in range(4)]
    async with Client([endpoint], follow_leader=False, timeout_s=0.5) as late:
        with pytest.raises(Unavailable, match="4 clients, as many as its limit of 44 open files"):
            await late.get("a")
        for _, writer in crowd:
            writer.close()
        assert await late.get("a") is None


def test_file_limit_too_low_for_a_node_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (20, 63))
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    with pytest.raises(ConfigError, match="63 open files, and a node needs at least 64"):
        raise_file_limit()
