"""Callers with known rights, for the duration of one request."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from palisade.catalog.permissions import PALISADE
from palisade.service.authorization.authorizer import Authenticated, Authorizer
from palisade.service.authorization.needs import EVERYTHING, Needs, reading, writing
from palisade.service.authorization.rights import NodeIdentity, Rights, UserIdentity
from palisade.service.callers import Caller
from palisade.wire.auth_errors import AuthorizationError


class Access(enum.Enum):
    """Which callers may use a route or call. OPEN: every client, also without credentials. AUTHENTICATED: users and
    nodes. NODES: nodes, and users with ADMIN on every key. ADMINS: users with ADMIN on every key. PER_REQUEST: users
    and nodes; `KeyValues` checks the keys of the request."""

    OPEN = "open"
    AUTHENTICATED = "authenticated"
    NODES = "nodes"
    ADMINS = "admins"
    PER_REQUEST = "per request"


class AuthenticatedCaller(Caller):
    """`rights`: as of the start of the request. `address` of the client and `action` as text, for the audit log."""

    __slots__ = ("_authorizer", "action", "address", "identity", "rights")
    is_limited = True

    def __init__(
        self,
        authorizer: Authorizer,
        identity: UserIdentity | NodeIdentity,
        rights: Rights,
        address: str,
        action: object,
    ) -> None:
        self._authorizer = authorizer
        self.identity, self.rights, self.address, self.action = identity, rights, address, action

    def require(self, needs: Needs) -> None:
        """Raises AuthorizationError, which is then in the audit log."""
        try:
            self.rights.check(needs)
        except AuthorizationError as error:
            self._authorizer.refused(error, self.rights.name, self.address, str(self.action))
            raise

    def require_read(self, key: bytes) -> None:
        if not key.startswith(self.rights.readable) or key.startswith(PALISADE):
            self.require((reading(key),))

    def require_write(self, key: bytes) -> None:
        if not key.startswith(self.rights.writable) or key.startswith(PALISADE):
            self.require((writing(key),))

    def require_writes(self, keys: Sequence[bytes]) -> None:
        prefixes = self.rights.writable
        if [key for key in keys if not key.startswith(prefixes) or key.startswith(PALISADE)]:
            self.require(tuple(map(writing, keys)))

    def require_access(self, access: Access) -> None:
        """As `require`, for a route or call."""
        if access is Access.ADMINS or (access is Access.NODES and not self.rights.is_node):
            self.require((EVERYTHING,))


class TokenCaller(AuthenticatedCaller):
    """The caller of consecutive requests with one token, over one connection that handles one request at a time.
    `header`: the token as it was sent; `action` is that of the current request."""

    __slots__ = ("_expires_ms", "_state", "header")

    def __init__(
        self, authorizer: Authorizer, known: Authenticated, expires_ms: int, header: bytes, address: str, action: object
    ) -> None:
        super().__init__(authorizer, *known.value, address, action)
        self.header, self._state, self._expires_ms = header, known.state, expires_ms

    def is_of(self, header: bytes | None) -> bool:
        """Whether a request with this header has this caller with these rights: it is the same token, which has not
        expired, and no permission row can have changed. False if that can't be known without reading."""
        authorizer, state = self._authorizer, self._state
        return (
            header == self.header
            and state is not None
            and state is authorizer.state()
            and self._expires_ms > authorizer.wall_s() * 1000
        )
