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
from palisade.errors import WrongPort
from tests.support.fake_group import HOST
from tests.support.served_node import client, group, server, service, services, stream

__all__ = ["client", "group", "server", "service", "services", "stream"]


async def test_http_request_to_the_stream_port_is_answered_with_the_http_port(stream: StreamServer) -> None:
    async with ClientSession() as session, session.get(f"http://127.0.0.1:{stream.port}/v1/status") as answer:
        problem = await answer.json(content_type=None)
    assert answer.status == 421
    assert problem["detail"].endswith(f"use the HTTP API port {HOST}:7401")


@pytest.mark.parametrize("wait_for_nodes", [False, True])
async def test_stream_client_at_the_http_port_fails_at_once_with_the_stream_port(
    server: HttpServer, wait_for_nodes: bool
) -> None:
    """It tried again until its deadline (issue 16)."""
    address = f"127.0.0.1:{server.port}"
    async with asyncio.timeout(15), Client(address, timeout_s=60, wait_for_nodes=wait_for_nodes) as wrong:
        for request in (wrong.get("a"), wrong.put("a", "b")):
            with pytest.raises(WrongPort, match=rf"^{address}: .*use the stream port {HOST}:7601"):
                await request
        async with wrong.watch("a") as changes:
            with pytest.raises(WrongPort):
                await anext(changes)


async def test_client_uses_the_right_address_beside_a_wrong_port(server: HttpServer, stream: StreamServer) -> None:
    async with Client([f"127.0.0.1:{server.port}", f"127.0.0.1:{stream.port}"], follow_leader=False) as mixed:
        await mixed.put("a", "b")


async def test_client_at_the_port_of_another_http_server_fails_at_once() -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    other = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    async with asyncio.timeout(15), Client(f"127.0.0.1:{port}", timeout_s=60) as wrong:
        with pytest.raises(WrongPort, match="the client needs the address of a stream"):
            await wrong.get("a")
    other.close()


async def test_tls_client_is_refused_and_logged(server: HttpServer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.open_connection("127.0.0.1", server.port, ssl=ssl._create_unverified_context())
    assert "this port has no TLS, connect without it" in caplog.text


async def test_http2_client_is_refused_in_its_own_protocol_with_the_reason(
    server: HttpServer, stream: StreamServer
) -> None:
    """The HTTP port answered a gRPC client with the text of aiohttp's parser (issue 16)."""
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0"
    for port, remedy in (
        (server.port, b"the JSON paths /v1 and /v3"),
        (stream.port, f"{HOST}:7401 with HTTP/1.1".encode()),
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(preface)
        answer = await reader.read()
        assert answer.startswith(b"\0\0\0\x04"), answer
        assert answer.endswith(remedy), answer
        writer.close()


async def test_client_that_does_not_wait_for_nodes_fails_at_once_where_none_listens() -> None:
    began = asyncio.get_running_loop().time()
    async with Client(["127.0.0.1:1", "127.0.0.1:2"], timeout_s=30, wait_for_nodes=False) as nobody:
        with pytest.raises(Unavailable, match=r"connections are refused at 127\.0\.0\.1:1, 127\.0\.0\.1:2"):
            await nobody.get("a")
    assert asyncio.get_running_loop().time() - began < 15
