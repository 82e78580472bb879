"""Requests that are not HTTP, or that contradict their head: every kind of node refuses them with 400 and logs nothing
(docs/bugs-found.md; scenarios.md, "Everywhere")."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from palisade.api.http.server import HttpServer
from palisade.node.config_sources import load_node_config
from palisade.node.standalone import StandaloneNode
from palisade.node.uninitialized import UninitializedNode
from tests.node.test_standalone import config_of, fill
from tests.support.processes import free_port
from tests.support.raw_http import RawHttp

NOT_HTTP = [
    b"GET \x00\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /livez HTTP/1.1\r\nHo^t/: x\r\n\r\n",
    b"PATCH ov1/topology HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
]


@pytest.fixture(autouse=True)
def nothing_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert [record for record in caplog.records if record.levelno >= logging.ERROR or record.exc_info] == []


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@pytest.mark.parametrize("path", ["/v1/put", "/v1/kv/a", "/v3/kv/put", "/v3/watch", "/v3/lease/keepalive"])
async def test_body_with_wrong_content_encoding_is_refused(server: HttpServer, path: str, encoding: str) -> None:
    """The response was 500, and the log had a traceback."""
    method = "PUT" if path == "/v1/kv/a" else "POST"
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Encoding: {encoding}\r\n"
    async with RawHttp(server.port) as connection:
        connection.send(head.encode() + b'Content-Length: 12\r\n\r\n{"key": "a"}')
        status, body = await connection.answer()
    assert status == 400, (status, body)


async def answers_and_says_nothing(port: int) -> None:
    for path in (b"/livez", b"/v1/status", b"/nowhere"):
        async with RawHttp(port) as connection:
            connection.send(b"GET %b HTTP/1.1\r\nHost: x\r\nExpect: \xe9\xff 100\r\n\r\n" % path)
            assert (await connection.answer())[0] == 417
    for sent in NOT_HTTP:
        async with RawHttp(port) as connection:
            connection.send(sent)
            assert (await connection.answer())[0] == 400


async def test_member_does_not_log_requests_that_are_not_http(server: HttpServer) -> None:
    await answers_and_says_nothing(server.port)


async def test_standalone_node_does_not_log_requests_that_are_not_http(tmp_path: Path) -> None:
    """The log had a traceback for each."""
    await fill(tmp_path / "f1")
    node = StandaloneNode(config_of(tmp_path / "f1"))
    try:
        await node.start()
        await answers_and_says_nothing(node.config.http.port)
    finally:
        await node.stop()


async def test_uninitialized_node_does_not_log_requests_that_are_not_http(tmp_path: Path) -> None:
    ports = {name: f"127.0.0.1:{free_port()}" for name in ("http", "peer", "stream", "swim")}
    config = load_node_config({"id": "n1", "cluster": "c1", "data-dir": str(tmp_path), **ports}, environ={})
    room = UninitializedNode(config)
    try:
        await room.start()
        await answers_and_says_nothing(config.http.port)
    finally:
        await room.stop()
