"""Each port of a node answers the clients of the others with the port to use (issue 16)."""

from __future__ import annotations

import asyncio
import logging
import ssl

import pytest
from aiohttp import ClientSession

from palisade.api.http.server import HttpServer
from palisade.api.stream.server import StreamServer
from palisade.client import Client, Unavailable
from tests.support.served_node import client, group, server, service, services, stream

__all__ = ["client", "group", "server", "service", "services", "stream"]


async def test_http_request_to_the_stream_port_is_answered_with_the_http_port(stream: StreamServer) -> None:
    async with ClientSession() as session, session.get(f"http://127.0.0.1:{stream.port}/v1/status") as answer:
        problem = await answer.json(content_type=None)
    assert answer.status == 421
    assert problem["detail"].endswith("use the HTTP API port 127.0.0.1:7401")


async def test_stream_client_at_the_http_port_gets_the_stream_port(server: HttpServer) -> None:
    async with Client([f"127.0.0.1:{server.port}"], timeout_s=0.5) as wrong:
        with pytest.raises(Unavailable, match=r"use the stream port 127\.0\.0\.1:7601"):
            await wrong.get("a")


async def test_tls_client_is_refused_and_logged(server: HttpServer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.open_connection("127.0.0.1", server.port, ssl=ssl._create_unverified_context())
    assert "this port has no TLS, connect without it" in caplog.text


async def test_client_that_does_not_wait_for_nodes_fails_at_once_where_none_listens() -> None:
    began = asyncio.get_running_loop().time()
    async with Client(["127.0.0.1:1", "127.0.0.1:2"], timeout_s=30, wait_for_nodes=False) as nobody:
        with pytest.raises(Unavailable, match=r"connections are refused at 127\.0\.0\.1:1, 127\.0\.0\.1:2"):
            await nobody.get("a")
    assert asyncio.get_running_loop().time() - began < 15
