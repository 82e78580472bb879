"""One HTTP request to a node: each failure is a NoAnswer with a text; the node that answered last is asked first."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web

from palisade.base.http_request import Addresses, HttpRequests, NoAnswer, error_text, problem_text


@pytest.fixture
async def address() -> AsyncIterator[str]:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"detail": request.headers.get("X-Own"), "asked": await request.text()}, status=409)

    async def text(request: web.Request) -> web.Response:
        return web.Response(text="no JSON", status=502)

    async def silent(request: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    async def broken(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b"part")
        assert request.transport is not None
        request.transport.abort()
        return response

    app = web.Application()
    handlers: dict[str, Callable[[web.Request], Awaitable[web.StreamResponse]]] = {
        "/answer": answer, "/text": text, "/silent": silent, "/broken": broken,
    }  # fmt: skip
    for path, handler in handlers.items():
        app.router.add_route("*", path, handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield "{}:{}".format(*runner.addresses[0][:2])
    await runner.cleanup()


async def test_json_returns_status_content_and_text(address: str) -> None:
    async with HttpRequests({"X-Own": "n1"}) as requests:
        answer = await requests.json(address, "/answer", "POST", {"a": 1})
    assert (answer.status, answer.detail, answer.content["asked"]) == (409, "n1", '{"a": 1}')


@pytest.mark.parametrize(
    ("path", "reason", "unreachable"),
    [("/text", "HTTP 502, not in JSON", False), ("/silent", "time", True), ("/broken", ".", False)],
)
async def test_failed_request_is_no_answer_with_a_reason(
    address: str, path: str, reason: str, unreachable: bool
) -> None:
    async with HttpRequests(timeout_s=0.3) as requests:
        with pytest.raises(NoAnswer, match=f"no node answers at {address}: .*{reason}") as failed:
            await requests.json(address, path)
    assert (failed.value.unreachable, failed.value.unsent) == (unreachable, False)


async def test_refused_connection_is_no_answer() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    async with HttpRequests() as requests:
        with pytest.raises(NoAnswer, match=str(port)) as failed:
            await requests.json(f"127.0.0.1:{port}", "/")
    assert failed.value.unreachable
    assert failed.value.unsent


async def test_caller_error_passes_through(address: str) -> None:
    async with HttpRequests() as requests:
        with pytest.raises(KeyError):
            async with requests.open(address, "/answer"):
                raise KeyError("own")


def test_error_without_text_is_described_by_its_type() -> None:
    assert error_text(TimeoutError()) == "no answer in time"
    assert error_text(OSError()) == "OSError"
    assert problem_text(500, None) == "HTTP 500"
    assert problem_text(500, {}) == "HTTP 500"
    assert problem_text(409, {"title": "Busy"}) == "Busy"


def test_addresses_begin_with_the_last_that_answered() -> None:
    known = ["a:1", "b:1", "c:1"]
    addresses = Addresses(lambda: known)
    assert addresses.in_order() == known
    addresses.answered("b:1")
    assert addresses.in_order() == ["b:1", "a:1", "c:1"]
    known.remove("b:1")
    assert addresses.in_order() == ["a:1", "c:1"]
