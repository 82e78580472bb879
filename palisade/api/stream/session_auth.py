"""Authentication of a stream connection by its HELLO, and authorization of each of its frames.

A frame is checked against the rights at its arrival (`service.authorization`). Usually they are known in the same turn
of the event loop; while they are fetched, later frames of the connection wait in order, and no more are read. A read
that waits because its client does not receive is checked again before it is executed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from palisade.api.permission_lookups import Lookups
from palisade.api.stream.call_permissions import is_for_nodes, needs_of_call
from palisade.api.stream.frame_checks import error_fields
from palisade.metastore.requests import Range, WatchRequest
from palisade.service.authorization.authorizer import Authorizer, claimed_identity
from palisade.service.authorization.callers import AuthenticatedCaller
from palisade.service.authorization.needs import Needs, reading
from palisade.service.authorization.rights import NodeIdentity, Rights, UserIdentity
from palisade.service.callers import Caller
from palisade.wire.auth_errors import AuthorizationError, PermissionDenied, Unauthenticated
from palisade.wire.credentials import from_hello

Handle = Callable[[int, Any], None]

GREETING_S = 1.0
"""How long a row of the permissions may take to read before the answer to HELLO: two rows in less than the time in
which clients expect it, so that they get the reason and can try another node."""
NOT_SIGNED_IN = "not signed in on this connection: send HELLO with credentials"


class UnknownRights:
    """The rights could not be determined: every request is refused with the error."""

    name = "unknown caller"
    is_node = False
    readable: tuple[bytes, ...] = ()
    writable: tuple[bytes, ...] = ()

    def __init__(self, error: AuthorizationError) -> None:
        self._error = error

    def check(self, needs: Iterable[Any]) -> None:
        raise type(self._error)(str(self._error))


class SessionAuth:
    """`address`: of the client. `run`: starts a task that ends with the connection."""

    def __init__(self, authorizer: Authorizer, lookups: Lookups, address: str, run: Callable[[Any], Any]) -> None:
        self._authorizer, self._lookups = authorizer, lookups
        self._address, self._run = address, run
        self._name = "unauthenticated client"
        self._identity: UserIdentity | NodeIdentity | None = None
        self._rights: Rights = UnknownRights(Unauthenticated(NOT_SIGNED_IN))
        self._backlog: deque[tuple[int, Any]] = deque()

    @property
    def is_waiting(self) -> bool:
        """Frames wait: the connection must not be read."""
        return bool(self._backlog)

    async def authenticate(self, hello: dict[str, Any]) -> None:
        """Raises AuthorizationError."""
        try:
            shown = from_hello(hello)
            self._name = claimed_identity(shown)
            self._identity = await self._authorizer.identify(shown, self._address, GREETING_S)
            self._rights = await self._authorizer.rights(self._identity, GREETING_S)
            self._name = self._rights.name
        except AuthorizationError as error:
            self._refused(error, "HELLO")
            raise

    def admit(self, kind: int, body: Any, handle: Handle, ended: Callable[[Exception | None], None]) -> None:
        """Handle a frame with the caller's current rights. `ended`: called when no frame waits any more, or with the
        error that ended the session.

        Raises Unauthenticated if the connection has no identity any more.
        """
        if self._identity is None:
            raise Unauthenticated(NOT_SIGNED_IN)
        if not self._backlog:
            rights = self._authorizer.try_rights(self._identity)
            if rights is not None:
                self._rights = rights
                handle(kind, body)
                return
        self._backlog.append((kind, body))
        if len(self._backlog) == 1:
            self._run(self._drain(self._identity, handle, ended))

    async def _drain(
        self, identity: UserIdentity | NodeIdentity, handle: Handle, ended: Callable[[Exception | None], None]
    ) -> None:
        failed: Exception | None = None
        try:
            while self._backlog and failed is None:
                try:
                    self._rights = await self._authorizer.rights(identity)
                except Unauthenticated as error:
                    self._refused(error, "a frame")
                    failed = error
                    break
                except AuthorizationError as error:
                    self._rights = UnknownRights(error)
                kind, body = self._backlog[0]
                handle(kind, body)
                self._backlog.popleft()
        except Exception as error:
            failed = error
        if failed is not None:
            self._backlog.clear()
        ended(failed)

    # Authorization of a frame.

    def caller(self, action: str) -> Caller:
        """The caller with the rights of the current frame. `action`: for the audit log."""
        identity = self._identity
        if identity is None:
            raise Unauthenticated(NOT_SIGNED_IN)
        return AuthenticatedCaller(self._authorizer, identity, self._rights, self._address, f"stream: {action}")

    async def call(self, name: Any, arguments: Any) -> None:
        """Raises AuthorizationError, and the errors of the lookup of a procedure."""
        rights = self._rights
        if rights.is_node and is_for_nodes(name):
            return
        needs = await needs_of_call(name, arguments, self._lookups)
        self._check(needs, f"the call {str(name)[:64]}", rights)

    async def reauthorize(self, request: WatchRequest | Range) -> None:
        """Raises AuthorizationError unless the watch may continue, or the delayed read may be executed."""
        if self._identity is None:
            raise Unauthenticated(NOT_SIGNED_IN)
        rights = await self._authorizer.rights(self._identity)
        action = "a watch" if isinstance(request, WatchRequest) else "a read"
        self._check((reading(request.key, request.range_end),), action, rights)

    def require_node(self) -> None:
        """Raises PermissionDenied unless the client is a node: leases are granted to nodes only."""
        if not self._rights.is_node:
            error = PermissionDenied("leases are granted to nodes only: connect with the join token")
            self._refused(error, "FENCE")
            raise error

    def _check(self, needs: Needs, action: str, rights: Rights | None = None) -> None:
        try:
            (rights or self._rights).check(needs)
        except AuthorizationError as error:
            self._refused(error, action)
            raise

    def _refused(self, error: Exception, action: str) -> None:
        self._authorizer.refused(error, self._name, self._address, f"stream: {action}")


class Refusable(Protocol):
    @property
    def idle(self) -> bool:
        """Every executed request has its answer."""
        ...

    async def wait_idle(self) -> None: ...
    def refuse(self, reason: str, code: str = "", *, unanswered_not_executed: bool = False) -> None: ...


async def refuse_when_idle(connection: Refusable, error: Unauthenticated, timeout_s: float) -> None:
    """Close a connection that handles no further frame, after the answers to those before."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await connection.wait_idle()
    connection.refuse(str(error), error_fields(error)[0], unanswered_not_executed=connection.idle)
