"""The gate of one connection of the stream: who it is, by HELLO, and whether that one may do what a frame asks for.

The rights of a frame are those at its arrival (`service.authorization`). They are mostly known in the same turn of the
loop; while they are fetched, later frames of the connection wait in order, and no more are read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from palisade.api.permission_lookups import Lookups
from palisade.api.stream.call_permissions import needs_of_call
from palisade.metastore.requests import WatchRequest
from palisade.service.authorization.authorizer import Authorizer, who_shows
from palisade.service.authorization.callers import KnownCaller
from palisade.service.authorization.needs import Needs, reading
from palisade.service.authorization.rights import NodeIdentity, Rights, UserIdentity
from palisade.service.callers import Caller
from palisade.wire.auth_errors import AuthorizationError, PermissionDenied, Unauthenticated
from palisade.wire.credentials import from_hello

Handle = Callable[[int, Any], None]


class NobodyKnows:
    """Rights that can't be known now: everything is refused with why."""

    who = "somebody"
    is_node = False

    def __init__(self, error: AuthorizationError) -> None:
        self._error = error

    def check(self, needs: Iterable[Any]) -> None:
        raise type(self._error)(str(self._error))

    def may_write(self, key: bytes) -> bool:
        return False


class Guard:
    """`where`: the address of the client. `run`: starts a task that ends with the connection."""

    def __init__(self, authorizer: Authorizer, look: Lookups, where: str, run: Callable[[Any], Any]) -> None:
        self._authorizer, self._look = authorizer, look
        self._where, self._run = where, run
        self._who = "nobody"
        self._identity: UserIdentity | NodeIdentity | None = None
        self._rights: Rights = NobodyKnows(Unauthenticated("nobody has signed in on this connection"))
        self._backlog: deque[tuple[int, Any]] = deque()

    @property
    def waits(self) -> bool:
        """Frames are waiting: nothing more is to be read."""
        return bool(self._backlog)

    async def enter(self, hello: dict[str, Any]) -> None:
        """Raises AuthorizationError."""
        try:
            shown = from_hello(hello)
            self._who = who_shows(shown)
            self._identity = await self._authorizer.identify(shown, self._where)
            self._rights = await self._authorizer.rights(self._identity)
            self._who = self._rights.who
        except AuthorizationError as error:
            self._refused(error, "HELLO")
            raise

    def admit(self, kind: int, body: Any, handle: Handle, ended: Callable[[Exception | None], None]) -> None:
        """Handle a frame with the rights of now. `ended`: called when the line is empty again, or with what is wrong.

        Raises Unauthenticated: the connection is nobody's any more."""
        if self._identity is None:
            raise Unauthenticated("nobody has signed in on this connection")
        if not self._backlog:
            rights = self._authorizer.rights_now(self._identity)
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
                    self._rights = NobodyKnows(error)
                kind, body = self._backlog[0]
                handle(kind, body)
                self._backlog.popleft()
        except Exception as error:
            failed = error
        if failed is not None:
            self._backlog.clear()
        ended(failed)

    # What a frame asks for.

    def caller(self, action: str) -> Caller:
        """With the rights of the frame at work. `action`: for the audit log."""
        identity = self._identity
        if identity is None:
            raise Unauthenticated("nobody has signed in on this connection")
        return KnownCaller(self._authorizer, identity, self._rights, self._where, f"stream: {action}")

    async def call(self, name: Any, arguments: Any) -> None:
        """Raises AuthorizationError, and what the lookup of a procedure raises."""
        rights = self._rights
        needs = await needs_of_call(name, arguments, self._look)
        self._check(needs, f"the call {str(name)[:64]}", rights)

    async def still(self, watched: WatchRequest) -> None:
        """Whether a watch may go on. Raises AuthorizationError."""
        if self._identity is None:
            raise Unauthenticated("nobody has signed in on this connection")
        rights = await self._authorizer.rights(self._identity)
        self._check((reading(watched.key, watched.range_end),), "a watch", rights)

    def node(self) -> None:
        """Raises PermissionDenied: leases are granted to nodes."""
        if not self._rights.is_node:
            error = PermissionDenied("leases are granted to nodes, which show the join token")
            self._refused(error, "FENCE")
            raise error

    def _check(self, needs: Needs, action: str, rights: Rights | None = None) -> None:
        try:
            (rights or self._rights).check(needs)
        except AuthorizationError as error:
            self._refused(error, action)
            raise

    def _refused(self, error: Exception, action: str) -> None:
        self._authorizer.refused(error, self._who, self._where, f"stream: {action}")
