"""What a connection has kept is gone when it is over, and not when the interpreter looks for cycles, which a node lets
it do rarely (`running.py`): what one had kept whose request was refused added up over those that came and went
(docs/bugs-found.md).

aiohttp leaves four cycles behind. Where a client hangs up while the rest of a refused body is read, the task of the
connection ends with an error whose traceback has the frame that names this task: the error is taken out of the task.
Where no route is found, the request holds the error that says so, whose traceback has the frames that hold the request:
the error forgets them once it is answered (`problems.py`). What aiohttp refuses before any middleware (an `Expect` that
it does not know) is an error in a frame of its own traceback: it becomes an answer earlier. Where a client hangs up in
the middle of a body that is waited for, the body holds the error that says so, whose traceback has the request: it is
answered as well, though nobody reads that.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from aiohttp import web

LINGERING_S = 2.0
"""How long the rest of a refused body is read for, so that the client comes to read why it was refused. Where handlers
do not end with their clients, the connection of one that has hung up is kept as long."""


def leave_nothing(server: Any) -> None:
    """`server`: the `aiohttp.web.Server` of a runner that is set up, before its first connection."""
    make, handle = server.request_factory, server.request_handler

    def made(message: Any, payload: Any, protocol: Any, writer: Any, task: asyncio.Task[Any]) -> Any:
        task.remove_done_callback(_forget_end)
        task.add_done_callback(_forget_end)
        return make(message, payload, protocol, writer, task)

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


def _forget_end(task: asyncio.Task[Any]) -> None:
    """Whoever asks a cancelled task for its end is handed the error itself."""
    if task.cancelled():
        with suppress(asyncio.CancelledError):
            task.exception()
