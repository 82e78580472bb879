"""POST /v1/login: a token for a user name and password. POST /v3/auth/authenticate: the same in etcd's form."""

from __future__ import annotations

import json
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


class LoginRoutes:
    """`authorizer` None: authorization is off."""

    def __init__(self, service: KeyValues, authorizer: Authorizer | None) -> None:
        self._authorizer = authorizer
        self._login = None if authorizer is None else Login(service, authorizer)

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/v1/login", self.login), web.post("/v3/auth/authenticate", self.authenticate)]

    async def login(self, request: web.Request) -> web.Response:
        found = fields_of(await read_json(request), LOGIN)
        if not found.keys() >= {"user", "password"}:
            raise BadRequest("the body: user and password are required")
        ttl_s = found.get("ttl_s", TTL_S)
        if not 1 <= ttl_s <= TTL_S_MAX:
            raise BadRequest(f"ttl_s: {ttl_s} is not between 1 and {TTL_S_MAX}")
        token, expires_ms = await self._token(request, Password(found["user"], found["password"]), ttl_s)
        shape = {"token": token, "user": found["user"], "expires_ms": expires_ms}
        return answer(shape, headers={"Cache-Control": "no-store"})

    async def authenticate(self, request: web.Request) -> web.Response:
        found = AUTHENTICATE.read(read_single(await read_body(request)))
        token, _ = await self._token(request, Password(found.get("name", ""), found.get("password", "")), TTL_S)
        body = json.dumps({"header": {}, "token": token}).encode()
        return web.Response(body=body, content_type="application/json", headers={"Cache-Control": "no-store"})

    async def _token(self, request: web.Request, shown: Password, ttl_s: int) -> tuple[str, int]:
        if self._login is None or self._authorizer is None:
            raise AuthorizationOff("authorization is off on this node: no sign-in needed")
        where = request.remote or ""
        try:
            return await self._login.token(shown, where, ttl_s)
        except AuthorizationError as error:
            self._authorizer.refused(error, f"user {shown.user}", where, f"POST {request.path}")
            raise
