"""GET /v1/login: the cluster that a client would sign in to. POST /v1/login: a token for a user name and password. POST
/v3/auth/authenticate: the same in etcd's form."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

from palisade.api.http.protobuf_json import FloatText, JsonMessage, mismatch, read_single
from palisade.api.http.request_body import a_number, a_text, fields_of, read_body, read_json
from palisade.api.http.v1_keys import answer
from palisade.service.authorization.authorizer import Authorizer
from palisade.service.authorization.login import Login
from palisade.service.key_values import KeyValues
from palisade.wire.auth_errors import AuthorizationError, AuthorizationOff
from palisade.wire.credentials import Password
from palisade.wire.error_codes import BadRequest
from palisade.wire.tokens import TTL_S, TTL_S_MAX


def as_string(value: Any) -> str:
    if type(value) is not str:
        raise mismatch("" if isinstance(value, FloatText) else value, "string")
    return value


LOGIN = {"user": a_text, "password": a_text, "ttl_s": a_number}
AUTHENTICATE = JsonMessage("etcdserverpb.AuthenticateRequest", {"name": as_string, "password": as_string})


class SignInRoute:
    """GET /v1/login, open to every client: names the cluster, so that a client sends credentials to no other one."""

    def __init__(self, cluster: str, cluster_id: Callable[[], str], *, authorizes: bool) -> None:
        self._cluster, self._cluster_id, self._authorizes = cluster, cluster_id, authorizes

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/v1/login", self.sign_in)]

    async def sign_in(self, request: web.Request) -> web.Response:
        """Shape `SignIn` of the API."""
        authorization = "on" if self._authorizes else "off"
        shape = {"cluster": self._cluster, "cluster_id": self._cluster_id(), "authorization": authorization}
        return answer(shape, headers={"Cache-Control": "no-store"})


class LoginRoutes:
    """`cluster` is its name. `authorizer` None: users do not have to sign in."""

    def __init__(self, service: KeyValues, authorizer: Authorizer | None, cluster: str) -> None:
        self._authorizer, self._store = authorizer, service.store
        self._login = None if authorizer is None else Login(service, authorizer)
        self._sign_in = SignInRoute(cluster, lambda: self._store.lineage.cluster_id, authorizes=authorizer is not None)

    def routes(self) -> list[web.RouteDef]:
        return [
            *self._sign_in.routes(),
            web.post("/v1/login", self.login),
            web.post("/v3/auth/authenticate", self.authenticate),
        ]

    async def login(self, request: web.Request) -> web.Response:
        found = fields_of(await read_json(request), LOGIN)
        if not found.keys() >= {"user", "password"}:
            raise BadRequest("the body: user and password are required")
        ttl_s = found.get("ttl_s", TTL_S)
        if not 1 <= ttl_s <= TTL_S_MAX:
            raise BadRequest(f"ttl_s: {ttl_s} is not between 1 and {TTL_S_MAX}")
        token, expires_ms = await self._token(request, Password(found["user"], found["password"]), ttl_s)
        cluster_id = self._store.lineage.cluster_id
        shape = {"token": token, "user": found["user"], "expires_ms": expires_ms, "cluster_id": cluster_id}
        return answer(shape, headers={"Cache-Control": "no-store"})

    async def authenticate(self, request: web.Request) -> web.Response:
        found = AUTHENTICATE.read(read_single(await read_body(request)))
        token, _ = await self._token(request, Password(found.get("name", ""), found.get("password", "")), TTL_S)
        body = json.dumps({"header": {}, "token": token}).encode()
        return web.Response(body=body, content_type="application/json", headers={"Cache-Control": "no-store"})

    async def _token(self, request: web.Request, shown: Password, ttl_s: int) -> tuple[str, int]:
        if self._login is None or self._authorizer is None:
            raise AuthorizationOff("authorization is off on this node; send requests without signing in")
        where = request.remote or ""
        try:
            return await self._login.token(shown, where, ttl_s)
        except AuthorizationError as error:
            self._authorizer.refused(error, f"user {shown.user}", where, f"POST {request.path}")
            raise
