"""Authenticates requests over HTTP by their Authorization header: the caller that `KeyValues` checks, on every path.

The rights are those at the moment at which the request is read. Usually they are known in the same turn of the event
loop; if they have to be fetched, only this request waits.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from palisade.service.authorization.authorizer import Authorizer, claimed_identity
from palisade.service.authorization.callers import AuthenticatedCaller, TokenCaller
from palisade.service.callers import UNRESTRICTED, Caller
from palisade.wire.auth_errors import AuthorizationError
from palisade.wire.credentials import from_header

if TYPE_CHECKING:
    from palisade.api.http.request_head import HttpReply, RequestPlan

PATIENCE_S = 3.0
"""Time limit for reading one row of the permissions: less than clients wait for a response, so that they get the reason
and can try another node."""
PATIENCE_SHARE = 0.5
"""The limit as a part of the client's timeout, if the client sends it (`TIMEOUT_HEADER`)."""
TIMEOUT_DIGITS_MAX = 12
_CALLER: web.RequestKey[Caller] = web.RequestKey("caller")


def caller_of(request: web.Request) -> Caller:
    """The caller of a request that has passed `AuthorizationGate`."""
    found: Caller = request.get(_CALLER, UNRESTRICTED)
    return found


def patience_of(timeout_ms: str | None) -> float:
    """Time limit for reading each row of the permissions. `timeout_ms`: the value of the client's TIMEOUT_HEADER."""
    client_s = client_timeout_s(timeout_ms)
    return PATIENCE_S if client_s is None else min(PATIENCE_S, PATIENCE_SHARE * client_s)


def client_timeout_s(timeout_ms: str | None) -> float | None:
    """How long the client waits for the response; None if unknown. `timeout_ms`: the value of its TIMEOUT_HEADER."""
    if timeout_ms is None or not timeout_ms.isdecimal() or len(timeout_ms) > TIMEOUT_DIGITS_MAX:
        return None
    return int(timeout_ms) / 1000


def set_caller(request: web.Request, caller: Caller) -> None:
    request[_CALLER] = caller


class AuthenticatedClient:
    """The client of one connection on the fast path. `address`: of the client, for the audit log.

    `caller`: of its last request, if that had a token. It is kept until the connection ends or sends other credentials,
    so that a request with the same token costs one comparison. Passwords and join tokens, which do not expire, are not
    kept.
    """

    __slots__ = ("_address", "_authorizer", "_callers", "caller")

    def __init__(self, callers: HttpCallers, address: str) -> None:
        self._callers, self._authorizer, self._address = callers, callers.authorizer, address
        self.caller: TokenCaller | None = None

    def authenticate_and_run(self, plan: RequestPlan, header: bytes | None, body: bytes, reply: HttpReply) -> None:
        """Run the plan with the rights that the Authorization header gives, or refuse the request. For every header
        that is not that of `caller`, or whose rights may have changed."""
        caller: AuthenticatedCaller
        self.caller = None
        try:
            known = self._authorizer.try_authenticate(text_of(header))
        except Exception as error:
            if isinstance(error, AuthorizationError):
                self._callers.refused(error, text_of(header), self._address, plan)
            plan.hot.refuse(error, reply)
            return
        if known is None:
            self._callers.run_later(plan, header, body, reply, self._address)
            return
        expires_ms = known.value[0].expires_ms
        if header is not None and expires_ms is not None:
            caller = self.caller = TokenCaller(self._authorizer, known, expires_ms, header, self._address, plan)
        else:
            caller = AuthenticatedCaller(self._authorizer, *known.value, self._address, plan)
        run_if_permitted(caller, plan, body, reply)


def text_of(header: bytes | None) -> str | None:
    return None if header is None else header.decode()


def run_if_permitted(caller: AuthenticatedCaller, plan: RequestPlan, body: bytes, reply: HttpReply) -> None:
    try:
        caller.require_access(plan.hot.access)
    except AuthorizationError as error:
        plan.hot.refuse(error, reply)
    else:
        plan.call(body, reply, caller)


class HttpCallers:
    def __init__(self, authorizer: Authorizer) -> None:
        self.authorizer = authorizer
        self._tasks: set[asyncio.Task[None]] = set()

    def client(self, transport: asyncio.BaseTransport) -> AuthenticatedClient:
        """The client of a new connection."""
        peer = transport.get_extra_info("peername")
        return AuthenticatedClient(self, str(peer[0]) if isinstance(peer, tuple) and peer else "")

    def run_later(self, plan: RequestPlan, header: bytes | None, body: bytes, reply: HttpReply, address: str) -> None:
        """Run the plan once the rights have been read."""
        task = asyncio.get_running_loop().create_task(self._authenticate_and_run(plan, header, body, reply, address))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _authenticate_and_run(
        self, plan: RequestPlan, header: bytes | None, body: bytes, reply: HttpReply, address: str
    ) -> None:
        try:
            caller = await self.authenticate(text_of(header), address, plan)
        except Exception as error:
            plan.hot.refuse(error, reply)
        else:
            run_if_permitted(caller, plan, body, reply)

    async def authenticate(
        self, header: str | None, where: str, action: object, timeout_ms: str | None = None
    ) -> AuthenticatedCaller:
        """`timeout_ms`: as in `patience_of`. Raises AuthorizationError, which is then in the audit log."""
        authorizer, patience_s = self.authorizer, patience_of(timeout_ms)
        try:
            identity = await authorizer.identify(from_header(header), where, patience_s)
            rights = await authorizer.rights(identity, patience_s)
        except AuthorizationError as error:
            self.refused(error, header, where, action)
            raise
        return AuthenticatedCaller(authorizer, identity, rights, where, action)

    def refused(self, error: AuthorizationError, header: str | None, where: str, action: object) -> None:
        try:
            caller = claimed_identity(from_header(header))
        except AuthorizationError:
            caller = "unauthenticated client"
        self.authorizer.refused(error, caller, where, str(action))
