"""The middleware that authenticates every HTTP request by its Authorization header and checks its permissions.

Handlers run only after it has passed. A handler that continues afterwards (a watch) checks again before each event.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from palisade.api.http.authorization_header import HttpCallers, set_caller
from palisade.api.http.etcd_errors import refused
from palisade.api.http.protobuf_json import BadJson
from palisade.api.http.reauthorize import REAUTHORIZE
from palisade.api.http.route_permissions import Rule, rule_of
from palisade.api.permission_lookups import NOTHING, Lookups
from palisade.base.http_request import TIMEOUT_HEADER
from palisade.service.authorization.authorizer import Authorizer
from palisade.service.authorization.callers import Access
from palisade.service.authorization.needs import Needs
from palisade.wire.auth_errors import PermissionDenied

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
METRICS = "/metrics"


class AuthorizationGate:
    """The middleware of one server. `authorizer` None: every client may do everything. `callers`: for the fast path."""

    def __init__(self, authorizer: Authorizer | None, lookups: Lookups = NOTHING) -> None:
        self._authorizer, self._lookups = authorizer, lookups
        self.callers = None if authorizer is None else HttpCallers(authorizer)

    @web.middleware
    async def guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        authorizer, callers = self._authorizer, self.callers
        if authorizer is None or callers is None:
            return await handler(request)
        rule = rule_of(request.method, path_of(request))
        if rule is Access.OPEN or (request.path == METRICS and permits_metrics(authorizer, request)):
            return await handler(request)
        try:
            await self._admit(authorizer, callers, request, rule)
        except BadJson as error:
            if not request.path.startswith("/v3/"):
                raise
            status, body = refused(error)
            return web.Response(status=status, body=body, content_type="application/json")
        return await handler(request)

    async def _admit(
        self, authorizer: Authorizer, callers: HttpCallers, request: web.Request, rule: Rule | None
    ) -> None:
        address, action = request.remote or "", f"{request.method} {request.rel_url.raw_path}"
        headers = request.headers
        caller = await callers.authenticate(headers.get("Authorization"), address, action, headers.get(TIMEOUT_HEADER))
        if rule is None:
            error = PermissionDenied("this route has no permission rule: this is a bug, report it")
            authorizer.refused(error, caller.rights.name, address, action)
            raise error
        if isinstance(rule, Access):
            caller.require_access(rule)
        else:
            caller.require(await rule(request, self._lookups))
        set_caller(request, caller)
        identity = caller.identity

        async def reauthorize(needs: Needs) -> None:
            (await authorizer.rights(identity)).check(needs)

        request[REAUTHORIZE] = reauthorize


def permits_metrics(authorizer: Authorizer, request: web.Request) -> bool:
    return request.method in ("GET", "HEAD") and authorizer.permits_metrics(request.headers.get("Authorization"))


def path_of(request: web.Request) -> str | None:
    resource: Any = getattr(request.match_info.route, "resource", None)
    return None if resource is None else str(resource.canonical)
