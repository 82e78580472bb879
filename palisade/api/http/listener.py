"""One application on one port: the fast path, and aiohttp behind it. The same for every kind of node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from aiohttp import web

from palisade.api.http.aiohttp_fixes import LINGERING_S, fix, quiet_log
from palisade.api.http.fast_path import FrontServer

CLOSE_S = 2.0
"""How long a request may still take when its server stops."""


def runner_of(app: web.Application, close_s: float = CLOSE_S, *, cancels_handlers: bool = False) -> web.AppRunner:
    """`cancels_handlers`: when their clients disconnect."""
    return web.AppRunner(
        app,
        access_log=None,
        handle_signals=False,
        shutdown_timeout=close_s,
        handler_cancellation=cancels_handlers,
        lingering_time=LINGERING_S,
        logger=quiet_log(),
    )


class HttpListener:
    """Runs from `start` to `end`."""

    def __init__(self, runner: web.AppRunner) -> None:
        self._runner = runner
        self.front: FrontServer | None = None

    async def start(self, front_of: Callable[[Any], FrontServer], host: str, port: int) -> None:
        """`front_of`: the fast path over aiohttp's server. Raises OSError if the port cannot be bound."""
        await self._runner.setup()
        server = cast(Any, self._runner.server)
        fix(server)
        self.front = front_of(server)
        await self.front.start(host, port)

    @property
    def port(self) -> int:
        return self.front.port if self.front is not None else 0

    @contextmanager
    def handling(self, request: web.Request) -> Iterator[None]:
        """Notifies the fast path when a head is complete and when its request has ended."""
        front, transport = self.front, request.transport
        if front is not None:
            front.handling(transport)
        try:
            yield
        finally:
            if front is not None:
                front.handled(transport)

    async def stop(self) -> None:
        """Accept no further connection, and finish the responses that are pending."""
        if self.front is not None:
            await self.front.close(CLOSE_S)

    async def end(self) -> None:
        """Close every connection."""
        await self._runner.cleanup()
        if self.front is not None:
            self.front.abort()
