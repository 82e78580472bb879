"""The HTTP server of a node that is no member of the Raft group: its health, its state, its recoveries, and what more
the kind of node serves. Everything else of /v1 and /v3 is refused, and says who can be asked for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from aiohttp import web

from node.http.body import HTTP_LIMITS
from node.http.front import HttpLimits
from node.http.health import Health
from node.http.problems import errors_as_answers
from node.http.v1_keys import answer
from node.http.v1_recovery import RecoveryRoutes
from node.recovery_face import RecoveryFace

CLOSE_S = 2.0
BODY_BYTES_MAX = 4 * 1024 * 1024


class VaultServer:
    """`routes`: what this kind of node serves beside the common ones. `refused`: the error for all else, by path."""

    def __init__(
        self,
        health: Health,
        status: Callable[[], dict[str, Any]],
        face: RecoveryFace,
        routes: Iterable[web.RouteDef],
        refused: Callable[[str], Exception],
    ) -> None:
        self._status, self._refused = status, refused
        self.app = web.Application(middlewares=[errors_as_answers], client_max_size=BODY_BYTES_MAX)
        self.app[HTTP_LIMITS] = HttpLimits(body_bytes_max=BODY_BYTES_MAX)
        recovery = [route for route in RecoveryRoutes(lambda: face).routes() if face.difference or is_read(route)]
        self.app.add_routes([*health.routes(), web.get("/v1/status", self._state, allow_head=False)])
        self.app.add_routes([*recovery, *routes])
        self.app.add_routes([web.route("*", f"/{api}/{{rest:.*}}", self._refuse) for api in ("v1", "v3")])
        self._runner = web.AppRunner(self.app, access_log=None, handle_signals=False, shutdown_timeout=CLOSE_S)

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises OSError when the port can't be had."""
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()

    async def close(self) -> None:
        await self._runner.cleanup()

    async def _state(self, request: web.Request) -> web.Response:
        return answer(self._status())

    async def _refuse(self, request: web.Request) -> web.Response:
        raise self._refused(f"{request.method} {request.path}")


def is_read(route: web.RouteDef) -> bool:
    return route.method == "GET"
