"""The gate in front of every handler of HTTP: who asks, by the header Authorization, and whether that one may.

A handler runs only behind it. What runs on afterwards, a watch, asks again before each thing that it tells.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from node.authorization.authorizer import Authorizer, who_shows
from node.authorization.credentials import from_header
from node.authorization.errors import AuthorizationError, PermissionDenied
from node.authorization.lookups import NOTHING, Lookups
from node.authorization.rights import Rights
from node.http.etcd_api import refused
from node.http.go_json import BadJson
from node.http.rules import Rule, Who, rule_of
from node.http.still import STILL
from service.authorization.needs import EVERYTHING, Needs

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Gate:
    """The middleware of one server. `authorizer` None: everybody may do everything."""

    def __init__(self, authorizer: Authorizer | None, look: Lookups = NOTHING) -> None:
        self._authorizer, self._look = authorizer, look

    @property
    def is_open(self) -> bool:
        return self._authorizer is None

    @web.middleware
    async def guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        authorizer = self._authorizer
        if authorizer is None:
            return await handler(request)
        rule = rule_of(request.method, path_of(request))
        if rule is Who.OPEN:
            return await handler(request)
        try:
            await self._admit(authorizer, request, rule)
        except BadJson as error:
            if not request.path.startswith("/v3/"):
                raise
            status, body = refused(error)
            return web.Response(status=status, body=body, content_type="application/json")
        return await handler(request)

    async def _admit(self, authorizer: Authorizer, request: web.Request, rule: Rule | None) -> None:
        where, who = request.remote or "", "nobody"
        try:
            shown = from_header(request.headers.get("Authorization"))
            who = who_shows(shown)
            identity = await authorizer.identify(shown, where)
            rights = await authorizer.rights(identity)
            who = rights.who
            await self._check(request, rule, rights)
        except AuthorizationError as error:
            authorizer.refused(error, who, where, f"{request.method} {request.rel_url.raw_path}")
            raise

        async def still(needs: Needs) -> None:
            (await authorizer.rights(identity)).check(needs)

        request[STILL] = still

    async def _check(self, request: web.Request, rule: Rule | None, rights: Rights) -> None:
        if rule is None:
            raise PermissionDenied("nobody has said who may do this: it is a fault of this version, please report it")
        if isinstance(rule, Who):
            allow(rule, rights)
        else:
            rights.check(await rule(request, self._look))


def allow(rule: Who, rights: Rights) -> None:
    """Raises PermissionDenied."""
    if rule is Who.ADMINS or (rule is Who.NODES and not rights.is_node):
        rights.check((EVERYTHING,))


def path_of(request: web.Request) -> str | None:
    resource: Any = getattr(request.match_info.route, "resource", None)
    return None if resource is None else str(resource.canonical)
