"""A closed HTTP connection is freed at once. A node collects cycles rarely: the memory of closed connections added up
to a hundred megabytes (docs/bugs-found.md)."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from palisade.api.http import listener
from palisade.api.http.fast_path import HttpConnection
from palisade.api.http.server import HttpServer
from palisade.node import uninitialized as waiting_room
from palisade.node.config_sources import load_node_config
from palisade.node.standalone import StandaloneNode
from tests.node.test_standalone import config_of, fill
from tests.support.processes import free_port
from tests.support.raw_http import RawHttp
from tests.support.waiting import until

KEPT = (HttpConnection, RequestHandler, web.BaseRequest)
POST = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
ENDLESS = b"Content-Length: 2147483647\r\n\r\n" + b"{" * 200_000
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n7fffffff\r\n" + b"{" * 200_000
HALF = b"Content-Length: 200001\r\n\r\n" + b"{" * 200_000
BODIES = {
    "more than is allowed": POST % b"/v1/put" + ENDLESS,
    "more than is allowed, in chunks": POST % b"/v1/put" + CHUNKED,
    "for a hot path": POST % b"/v3/kv/put" + ENDLESS,
    "for no path": POST % b"/v1/nowhere" + ENDLESS,
    "for no path, in chunks": POST % b"/v1/nowhere" + CHUNKED,
    "for another method": POST % b"/v1/status" + ENDLESS,
    "of another type": b"POST /v1/put HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n" + ENDLESS,
    "wrong": POST % b"/v1/put" + b"Content-Length: 5\r\n\r\n{{{{{",
    "encoded otherwise": POST % b"/v1/put" + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\n{{{{{",
}
HEADS = {
    "no path": b"GET /v1/nowhere HTTP/1.1\r\nHost: x\r\n\r\n",
    "another method": b"PATCH /v1/status HTTP/1.1\r\nHost: x\r\n\r\n",
    "an expectation": b"GET /livez HTTP/1.1\r\nHost: x\r\nExpect: much\r\n\r\n",
    "no HTTP": b"GET \x00\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
    "several": b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n" * 3,
}
UNANSWERED = {
    "half a head": b"GET /v1/status HTTP/1.1\r\nX: y\r\nHo",
    "half a body": POST % b"/v1/put" + HALF,
    "half a body of a hot path": POST % b"/v3/kv/put" + HALF,
    "a stream": POST % b"/v3/watch" + b"Content-Length: 2147483647\r\n\r\n" + b'{"',
    "an answer without end": b"GET /v1/watch?prefix=a HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.fixture(autouse=True)
def only_new_objects() -> Iterator[None]:
    """Objects of other tests are neither examined nor collected."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def kept() -> list[object]:
    return [each for each in gc.get_objects() if isinstance(each, KEPT)]


async def is_gone(port: int, sent: bytes, *, answered: bool = True) -> None:
    """The client disconnects as soon as the response begins, or as soon as it is connected."""
    async with RawHttp(port) as connection:
        connection.send(sent)
        await until(lambda: kept() != [])
        if answered:
            await connection.reader.readexactly(1)
        gc.collect()
        gc.disable()
    try:
        await until(lambda: kept() == [])
    finally:
        gc.enable()


@pytest.mark.parametrize("what", [*BODIES, *HEADS])
async def test_answered_request_leaves_no_cycle(server: HttpServer, what: str) -> None:
    await is_gone(server.port, (BODIES | HEADS)[what])


@pytest.mark.parametrize("what", UNANSWERED)
async def test_unanswered_request_leaves_no_cycle(server: HttpServer, what: str) -> None:
    await is_gone(server.port, UNANSWERED[what], answered=False)


async def test_request_at_standalone_node_leaves_no_cycle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was kept for 10 s after its client had disconnected, and until the next collection of cycles."""
    monkeypatch.setattr(listener, "LINGERING_S", 0.1)
    await fill(tmp_path / "f1")
    node = StandaloneNode(config_of(tmp_path / "f1"))
    try:
        await node.start()
        for what in ("for no path", "more than is allowed", "no path"):
            await is_gone(node.config.http.port, (BODIES | HEADS)[what])
        await is_gone(node.config.http.port, POST % b"/v1/range" + HALF, answered=False)
    finally:
        await node.stop()


async def test_request_at_uninitialized_node_leaves_no_cycle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "LINGERING_S", 0.1)
    ports = {name: f"127.0.0.1:{free_port()}" for name in ("http", "peer", "stream", "swim")}
    config = load_node_config({"id": "n1", "cluster": "c1", "data-dir": str(tmp_path), **ports}, environ={})
    room = waiting_room.UninitializedNode(config)
    try:
        await room.start()
        for what in ("for no path", "more than is allowed", "no path"):
            await is_gone(config.http.port, (BODIES | HEADS)[what])
        await is_gone(config.http.port, POST % b"/v1/init/prepare" + HALF, answered=False)
    finally:
        await room.stop()
