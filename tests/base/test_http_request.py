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
    ("path", "text", "unreachable"),
    [
        ("/text", "no node answers at {}: HTTP 502, not in JSON", False),
        ("/silent", r"{} accepts connections, but has not answered within 0\.3 s", True),
        ("/broken", "no node answers at {}: .", False),
    ],
)
async def test_failed_request_is_no_answer_with_a_reason(address: str, path: str, text: str, unreachable: bool) -> None:
    async with HttpRequests(timeout_s=0.3) as requests:
        with pytest.raises(NoAnswer, match=text.format(address)) as failed:
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


async def test_connection_without_a_response_is_distinguished_from_no_connection(address: str) -> None:
    """`--at` of a frozen node, which accepts connections, printed "no node answers" (issue 16)."""
    with pytest.raises(NoAnswer, match=rf"^{address} accepts connections, but has not answered within 0\.2 s$") as late:
        async with HttpRequests(timeout_s=0.2) as requests:
            await requests.json(address, "/silent")
    assert (late.value.reason, late.value.unsent) == ("no answer in time", False)
    with pytest.raises(NoAnswer, match=r"^no node answers at 127\.0\.0\.1:9: connection refused$") as refused:
        async with HttpRequests(timeout_s=0.2) as requests:
            await requests.json("127.0.0.1:9", "/")
    assert (refused.value.silent_s, refused.value.unsent) == (None, True)


async def test_request_without_a_connection_in_time_was_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object, **__: object) -> None:
        await asyncio.sleep(3600)

    async with HttpRequests(timeout_s=0.1) as requests:
        monkeypatch.setattr(requests._opened().connector, "_create_connection", never)
        with pytest.raises(NoAnswer, match=r"^no node answers at 127\.0\.0\.1:9: no answer in time$") as late:
            await requests.json("127.0.0.1:9", "/")
    assert (late.value.unsent, late.value.silent_s) == (True, None)


async def test_second_request_over_a_connection_has_it_as_well(address: str) -> None:
    async with HttpRequests(timeout_s=0.3) as requests:
        await requests.json(address, "/answer")
        with pytest.raises(NoAnswer, match="accepts connections") as late:
            await requests.json(address, "/silent")
    assert not late.value.unsent
