"""One application on one port: the fast path, and aiohttp for the rest. The same for every kind of node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from aiohttp import web

from palisade.api.http.aiohttp_fixes import LINGERING_S, fix, quiet_log
from palisade.api.http.fast_path import FastPathServer

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
        self.fast_path: FastPathServer | None = None

    async def start(self, make_fast_path: Callable[[Any], FastPathServer], host: str, port: int) -> None:
        """`make_fast_path`: its argument is the server of aiohttp. Raises OSError if the port cannot be bound."""
        await self._runner.setup()
        server = cast(Any, self._runner.server)
        fix(server)
        self.fast_path = make_fast_path(server)
        await self.fast_path.start(host, port)

    @property
    def port(self) -> int:
        return self.fast_path.port if self.fast_path is not None else 0

    @contextmanager
    def handling(self, request: web.Request) -> Iterator[None]:
        """Notifies the fast path when a head is complete and when its request has ended."""
        fast_path, transport = self.fast_path, request.transport
        if fast_path is not None:
            fast_path.handling(transport)
        try:
            yield
        finally:
            if fast_path is not None:
                fast_path.handled(transport)

    async def stop(self) -> None:
        """Accept no further connection, and finish the responses that are pending."""
        if self.fast_path is not None:
            await self.fast_path.close(CLOSE_S)

    async def end(self) -> None:
        """Close every connection."""
        await self._runner.cleanup()
        if self.fast_path is not None:
            self.fast_path.abort()
