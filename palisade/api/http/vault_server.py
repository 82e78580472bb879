"""The HTTP server of a node that is no member of the Raft group: health, state, recoveries, and the routes of the kind
of node. All other paths of /v1 and /v3 are refused; the error names the nodes that serve them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from aiohttp import web
from aiohttp.typedefs import Middleware

from palisade.api.http.aiohttp_fixes import LINGERING_S, fix, quiet_log
from palisade.api.http.authorization import AuthorizationGate
from palisade.api.http.fast_path import FrontServer, HttpLimits
from palisade.api.http.health import Health
from palisade.api.http.problems import Handler, errors_as_answers
from palisade.api.http.request_body import HTTP_LIMITS
from palisade.api.http.request_head import Hot
from palisade.api.http.v1_keys import answer
from palisade.api.http.v1_recovery import RecoveryRoutes
from palisade.base.connection_limit import ConnectionLimit
from palisade.base.metrics import Metrics
from palisade.recovery.status import RecoveryFace
from palisade.service.authorization.authorizer import Authorizer

CLOSE_S = 2.0
BODY_BYTES_MAX = 4 * 1024 * 1024


class VaultServer:
    """`routes`: served in addition to the common ones. `refused`: the error for every other path.

    `keys`: paths of one key on the fast path; with `trace`, which wraps every request, none takes it. `authorizer`
    None: every client may do everything.
    """

    def __init__(
        self,
        health: Health,
        status: Callable[[], dict[str, Any]],
        face: RecoveryFace,
        routes: Iterable[web.RouteDef],
        refused: Callable[[str], Exception],
        keys: Iterable[Hot] = (),
        authorizer: Authorizer | None = None,
        *,
        trace: Middleware | None = None,
    ) -> None:
        self._front: FrontServer | None = None
        self._status, self._refused = status, refused
        gate = AuthorizationGate(authorizer)
        self._keys, self._callers = () if trace else tuple(keys), gate.callers
        self.app = web.Application(
            middlewares=[self._note, *([trace] if trace else []), errors_as_answers, gate.guard],
            client_max_size=BODY_BYTES_MAX,
        )
        self.app[HTTP_LIMITS] = HttpLimits(body_bytes_max=BODY_BYTES_MAX)
        recovery = [route for route in RecoveryRoutes(lambda: face).routes() if face.difference or is_read(route)]
        self.app.add_routes([*health.routes(), web.get("/v1/status", self._state, allow_head=False)])
        self.app.add_routes([*recovery, *routes])
        self.app.add_routes([web.route("*", f"/{api}/{{rest:.*}}", self._refuse) for api in ("v1", "v3")])
        self._runner = web.AppRunner(
            self.app,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=CLOSE_S,
            lingering_time=LINGERING_S,
            logger=quiet_log(),
        )

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises OSError if the port cannot be bound."""
        await self._runner.setup()
        server, metrics, limits = cast(Any, self._runner.server), Metrics(), self.app[HTTP_LIMITS]
        fix(server)
        self._front = FrontServer({}, server, limits, metrics, ConnectionLimit(metrics), self._keys, self._callers)
        await self._front.start(host, port)

    @property
    def port(self) -> int:
        return self._front.port if self._front is not None else 0

    async def close(self) -> None:
        if self._front is not None:
            await self._front.close(CLOSE_S)
        await self._runner.cleanup()
        if self._front is not None:
            self._front.abort()

    @web.middleware
    async def _note(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Notifies the fast path when a head is complete and when its request has ended."""
        front, transport = self._front, request.transport
        if front is not None:
            front.handling(transport)
        try:
            return await handler(request)
        finally:
            if front is not None:
                front.handled(transport)

    async def _state(self, request: web.Request) -> web.Response:
        return answer(self._status())

    async def _refuse(self, request: web.Request) -> web.Response:
        raise self._refused(f"{request.method} {request.path}")


def is_read(route: web.RouteDef) -> bool:
    return route.method == "GET"
