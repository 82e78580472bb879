"""The part of aiohttp's log that a node writes to its own log."""

from __future__ import annotations

import asyncio
import logging

import pytest
from aiohttp import ClientConnectionError, ClientSession, web

from palisade.api.http.aiohttp_fixes import quiet_log


async def ends_as_nobody_waits_any_more(request: web.Request) -> web.Response:
    """aiohttp, while closing, has just stopped waiting for this request."""
    waiter = request.protocol._handler_waiter = asyncio.get_running_loop().create_future()
    waiter.cancel()
    return web.Response()


async def is_wrong(_request: web.Request) -> web.Response:
    raise asyncio.InvalidStateError("a fault of this handler")


async def logged(handler: object, logger: logging.Logger, caplog: pytest.LogCaptureFixture) -> list[str]:
    app = web.Application()
    app.router.add_get("/", handler)  # type: ignore[arg-type]
    runner = web.AppRunner(app, access_log=None, handle_signals=False, logger=logger)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    caplog.clear()
    async with ClientSession() as session:
        try:
            async with session.get(f"http://{host}:{port}/") as response:
                await response.read()
        except ClientConnectionError:
            pass
    await runner.cleanup()
    return [record.getMessage() for record in caplog.records if record.name == logger.name]


async def test_request_that_ends_while_aiohttp_closes_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """tests/sim, scenario many, seed 37323."""
    assert await logged(ends_as_nobody_waits_any_more, logging.getLogger("plain"), caplog) == ["Unhandled exception"]
    assert await logged(ends_as_nobody_waits_any_more, quiet_log(), caplog) == []


async def test_error_of_a_handler_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert await logged(is_wrong, quiet_log(), caplog) == ["Error handling request from 127.0.0.1"]
