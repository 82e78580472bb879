"""The caller of a request over HTTP, by its header Authorization.

Its rights are those at the time when the request is read. Usually they are known within that turn of the loop; if they
have to be fetched, only this request waits.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from palisade.service.authorization.authorizer import Authorizer, who_shows
from palisade.service.authorization.callers import KnownCaller, Who
from palisade.service.callers import EVERYBODY, Caller
from palisade.wire.auth_errors import AuthorizationError
from palisade.wire.credentials import from_header

if TYPE_CHECKING:
    from palisade.api.http.request_head import HttpReply, RequestPlan

_CALLER = "palisade.caller"


def caller_of(request: web.Request) -> Caller:
    """Of a request that has passed the gate."""
    found: Caller = request.get(_CALLER, EVERYBODY)
    return found


def set_caller(request: web.Request, caller: Caller) -> None:
    request[_CALLER] = caller


class HttpCallers:
    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, plan: RequestPlan, body: bytes, reply: HttpReply, where: str) -> None:
        """Execute the plan for its caller, or refuse it."""
        authorizer, hot = self._authorizer, plan.hot
        try:
            known = authorizer.known_now(plan.authorization)
        except AuthorizationError as error:
            self.refused(error, plan.authorization, where, plan)
            hot.refuse(error, reply)
            return
        except Exception as error:
            hot.refuse(error, reply)
            return
        if known is None:
            task = asyncio.get_running_loop().create_task(self._later(plan, body, reply, where))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        caller = KnownCaller(authorizer, *known, where, plan)
        if hot.who is Who.BY_REQUEST:
            plan.call(body, reply, caller)
        else:
            self._enter(caller, plan, body, reply)

    @staticmethod
    def _enter(caller: KnownCaller, plan: RequestPlan, body: bytes, reply: HttpReply) -> None:
        hot = plan.hot
        try:
            caller.enter(hot.who)
        except AuthorizationError as error:
            hot.refuse(error, reply)
        else:
            plan.call(body, reply, caller)

    async def _later(self, plan: RequestPlan, body: bytes, reply: HttpReply, where: str) -> None:
        try:
            caller = await self.later(plan.authorization, where, plan)
        except Exception as error:
            plan.hot.refuse(error, reply)
        else:
            self._enter(caller, plan, body, reply)

    async def later(self, header: str | None, where: str, action: object) -> KnownCaller:
        """Raises AuthorizationError, which is in the audit log then."""
        authorizer = self._authorizer
        try:
            identity = await authorizer.identify(from_header(header), where)
            rights = await authorizer.rights(identity)
        except AuthorizationError as error:
            self.refused(error, header, where, action)
            raise
        return KnownCaller(authorizer, identity, rights, where, action)

    def refused(self, error: AuthorizationError, header: str | None, where: str, action: object) -> None:
        try:
            who = who_shows(from_header(header))
        except AuthorizationError:
            who = "nobody"
        self._authorizer.refused(error, who, where, str(action))
