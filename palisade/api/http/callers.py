"""Authenticates requests over HTTP by their Authorization header: the caller that `KeyValues` checks, on every path.

The rights are those at the moment at which the request is read. Usually they are known in the same turn of the event
loop; if they have to be fetched, only this request waits.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from palisade.service.authorization.authorizer import Authorizer, claimed_identity
from palisade.service.authorization.callers import Access, AuthenticatedCaller
from palisade.service.callers import UNRESTRICTED, Caller
from palisade.wire.auth_errors import AuthorizationError
from palisade.wire.credentials import from_header

if TYPE_CHECKING:
    from palisade.api.http.request_head import HttpReply, RequestPlan

_CALLER = "palisade.caller"


def caller_of(request: web.Request) -> Caller:
    """The caller of a request that has passed `AuthorizationGate`."""
    found: Caller = request.get(_CALLER, UNRESTRICTED)
    return found


def set_caller(request: web.Request, caller: Caller) -> None:
    request[_CALLER] = caller


class HttpCallers:
    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, plan: RequestPlan, body: bytes, reply: HttpReply, where: str) -> None:
        """Run the plan with the rights of the caller, or refuse the request."""
        authorizer, hot = self._authorizer, plan.hot
        try:
            known = authorizer.try_authenticate(plan.authorization)
        except AuthorizationError as error:
            self.refused(error, plan.authorization, where, plan)
            hot.refuse(error, reply)
            return
        except Exception as error:
            hot.refuse(error, reply)
            return
        if known is None:
            task = asyncio.get_running_loop().create_task(self._authenticate_and_run(plan, body, reply, where))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        caller = AuthenticatedCaller(authorizer, *known, where, plan)
        if hot.access is Access.PER_REQUEST:
            plan.call(body, reply, caller)
        else:
            self._run_if_permitted(caller, plan, body, reply)

    @staticmethod
    def _run_if_permitted(caller: AuthenticatedCaller, plan: RequestPlan, body: bytes, reply: HttpReply) -> None:
        hot = plan.hot
        try:
            caller.require_access(hot.access)
        except AuthorizationError as error:
            hot.refuse(error, reply)
        else:
            plan.call(body, reply, caller)

    async def _authenticate_and_run(self, plan: RequestPlan, body: bytes, reply: HttpReply, where: str) -> None:
        try:
            caller = await self.authenticate(plan.authorization, where, plan)
        except Exception as error:
            plan.hot.refuse(error, reply)
        else:
            self._run_if_permitted(caller, plan, body, reply)

    async def authenticate(self, header: str | None, where: str, action: object) -> AuthenticatedCaller:
        """Raises AuthorizationError, which is then in the audit log."""
        authorizer = self._authorizer
        try:
            identity = await authorizer.identify(from_header(header), where)
            rights = await authorizer.rights(identity)
        except AuthorizationError as error:
            self.refused(error, header, where, action)
            raise
        return AuthenticatedCaller(authorizer, identity, rights, where, action)

    def refused(self, error: AuthorizationError, header: str | None, where: str, action: object) -> None:
        try:
            caller = claimed_identity(from_header(header))
        except AuthorizationError:
            caller = "unauthenticated client"
        self._authorizer.refused(error, caller, where, str(action))
