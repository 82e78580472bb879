"""Three fixes around aiohttp, for every HTTP server of a node. Each has a test that fails without it.

1. *Memory of closed connections is freed at once* (docs/bugs-found.md; a node collects cycles rarely, `node/run.py`).
   aiohttp leaves four cycles. (a) If a client disconnects while the rest of a refused body is read, the task of the
   connection ends with an error whose traceback refers to the task: the error is removed from the task. (b) The request
   holds the error of a route that is not found: `problems.py` drops its traceback. (c) An unknown `Expect` raises an
   error in a frame of its own traceback: such requests are answered earlier. (d) A truncated body holds the error whose
   traceback refers to the request: it is answered, too.
2. *A refused `Expect` header gets a response that can be sent*, whatever bytes it contains. aiohttp quotes the header
   in its 417, which fails if it is not UTF-8: a 500 and a traceback in the log for each request. This happens before
   any route or middleware, so the header is made readable where requests are created.
3. *The log contains faults of the node only.* Errors of clients are answered and not logged, since a client could fill
   the disk. Also not logged: a request that ends at the moment at which aiohttp, while closing, has stopped waiting for
   it; aiohttp then notifies a future that is gone and reports that as an error. Errors of handlers never reach this
   place.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import InvalidStateError
from contextlib import suppress
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDict, CIMultiDictProxy

EXPECT = "Expect"
_OF_CLIENTS = (HttpProcessingError, web.RequestPayloadError, ConnectionError)
_OUTSIDE_OF_HANDLERS = "Unhandled exception"
LINGERING_S = 2.0
"""How long the rest of a refused body is read, so that the client reads the reason of the refusal. Where handlers do
not end with their clients, a disconnected connection is kept as long."""


def fix(server: Any) -> None:
    """Fixes 1 and 2. `server`: the `aiohttp.web.Server` of a runner that is set up, before its first connection."""
    make, handle = server.request_factory, server.request_handler

    def made(message: Any, payload: Any, protocol: Any, writer: Any, task: asyncio.Task[Any]) -> Any:
        task.remove_done_callback(_forget_end)
        task.add_done_callback(_forget_end)
        return make(_with_readable_expect(message), payload, protocol, writer, task)

    async def handled(request: web.BaseRequest) -> web.StreamResponse:
        try:
            response: web.StreamResponse = await handle(request)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            response = web.Response(status=error.status, reason=error.reason, text=error.text)
        except ConnectionError:
            if request.transport is not None:
                raise
            response = web.Response(status=400)
        broken = request.content.exception()
        if broken is not None:
            broken.__traceback__ = None
        return response

    server.request_factory, server.request_handler = made, handled


def _with_readable_expect(message: Any) -> Any:
    expect = message.headers.get(EXPECT)
    if expect is None or expect.isascii():
        return message
    headers = CIMultiDict(message.headers)
    headers[EXPECT] = expect.encode("ascii", "replace").decode()
    return message._replace(headers=CIMultiDictProxy(headers))


def _forget_end(task: asyncio.Task[Any]) -> None:
    """Retrieving the result of a cancelled task removes the error from it."""
    if task.cancelled():
        with suppress(asyncio.CancelledError):
            task.exception()


class _OwnFaults(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if record.msg == _OUTSIDE_OF_HANDLERS and isinstance(error, InvalidStateError):
            return False
        return not isinstance(error, _OF_CLIENTS)


def quiet_log() -> logging.Logger:
    logger = logging.getLogger("palisade.api.http.aiohttp")
    if not logger.filters:
        logger.addFilter(_OwnFaults())
    return logger
