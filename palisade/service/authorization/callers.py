"""Callers whose rights are known, for the length of one request."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from palisade.service.authorization.authorizer import Authorizer
from palisade.service.authorization.needs import EVERYTHING, Needs, writing
from palisade.service.authorization.rights import NodeIdentity, Rights, UserIdentity
from palisade.service.callers import Caller
from palisade.wire.auth_errors import AuthorizationError


class Who(enum.Enum):
    """Which callers a route or call is open to. OPEN: to every client, signed in or not. SIGNED_IN: to users and nodes.
    NODES: to nodes, and ADMIN. ADMINS: to ADMIN on every key. BY_REQUEST: to users and nodes; what is asked for is
    checked where it is done (`KeyValues`)."""

    OPEN = "open"
    SIGNED_IN = "signed in"
    NODES = "nodes"
    ADMINS = "admins"
    BY_REQUEST = "by request"


class KnownCaller(Caller):
    """`rights`: as of the beginning of the request. `where`, `action` as text: for the audit log."""

    __slots__ = ("_authorizer", "action", "identity", "rights", "where")
    is_limited = True

    def __init__(
        self, authorizer: Authorizer, identity: UserIdentity | NodeIdentity, rights: Rights, where: str, action: object
    ) -> None:
        self._authorizer = authorizer
        self.identity, self.rights, self.where, self.action = identity, rights, where, action

    def require(self, needs: Needs) -> None:
        """Raises AuthorizationError, which is in the audit log then."""
        try:
            self.rights.check(needs)
        except AuthorizationError as error:
            self._authorizer.refused(error, self.rights.who, self.where, str(self.action))
            raise

    def require_writes(self, keys: Sequence[bytes]) -> None:
        if not all(map(self.rights.may_write, keys)):
            self.require(tuple(map(writing, keys)))

    def enter(self, who: Who) -> None:
        """As `require`, for a route or call."""
        if who is Who.ADMINS or (who is Who.NODES and not self.rights.is_node):
            self.require((EVERYTHING,))
