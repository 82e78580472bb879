"""The HTTP server of a node that is no member of the Raft group: health, state, recoveries, and the routes of the kind
of node. All other paths of /v1 and /v3 are refused; the error names the nodes that serve them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Middleware

from palisade.api.http.authorization import AuthorizationGate
from palisade.api.http.fast_path import FastPathServer, HttpLimits
from palisade.api.http.health import Health
from palisade.api.http.listener import HttpListener, runner_of
from palisade.api.http.problems import Handler, errors_as_answers
from palisade.api.http.request_body import HTTP_LIMITS
from palisade.api.http.request_head import Hot
from palisade.api.http.v1_keys import answer
from palisade.api.http.v1_recovery import RecoveryRoutes
from palisade.base.connection_limit import ConnectionLimit
from palisade.base.metrics import Metrics
from palisade.recovery.status import RecoveryStatus
from palisade.service.authorization.authorizer import Authorizer

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
        recovery: RecoveryStatus,
        routes: Iterable[web.RouteDef],
        refused: Callable[[str], Exception],
        keys: Iterable[Hot] = (),
        authorizer: Authorizer | None = None,
        *,
        trace: Middleware | None = None,
    ) -> None:
        self._status, self._refused = status, refused
        gate = AuthorizationGate(authorizer)
        self._keys, self._callers = () if trace else tuple(keys), gate.callers
        self.app = web.Application(
            middlewares=[self._note, *([trace] if trace else []), errors_as_answers, gate.guard],
            client_max_size=BODY_BYTES_MAX,
        )
        self.app[HTTP_LIMITS] = HttpLimits(body_bytes_max=BODY_BYTES_MAX)
        found = RecoveryRoutes(lambda: recovery).routes()
        recovery_routes = [route for route in found if recovery.difference or is_read(route)]
        self.app.add_routes([*health.routes(), web.get("/v1/status", self._state, allow_head=False)])
        self.app.add_routes([*recovery_routes, *routes])
        self.app.add_routes([web.route("*", f"/{api}/{{rest:.*}}", self._refuse) for api in ("v1", "v3")])
        self.listener = HttpListener(runner_of(self.app))

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises OSError if the port cannot be bound."""
        await self.listener.start(self._make_fast_path, host, port)

    def _make_fast_path(self, server: Any) -> FastPathServer:
        metrics = Metrics()
        limits, room = self.app[HTTP_LIMITS], ConnectionLimit(metrics)
        return FastPathServer({}, server, limits, metrics, room, self._keys, self._callers)

    @property
    def port(self) -> int:
        return self.listener.port

    async def close(self) -> None:
        await self.listener.stop()
        await self.listener.end()

    @web.middleware
    async def _note(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        with self.listener.handling(request):
            return await handler(request)

    async def _state(self, request: web.Request) -> web.Response:
        return answer(self._status())

    async def _refuse(self, request: web.Request) -> web.Response:
        raise self._refused(f"{request.method} {request.path}")


def is_read(route: web.RouteDef) -> bool:
    return route.method == "GET"
