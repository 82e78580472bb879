"""Identities, and their rights as of one moment. Pure.

The rights of a user are those of its row and of the rows of its roles. `read_rights` requests these rows one by one,
which are read through the fence (`rows.py`), and the user's row once more at the end, so the roles were those of the
user when they were read. `PermissionCache` keeps the meaning of rows, never that rows are current.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from palisade.catalog import keys
from palisade.catalog.errors import DamagedRow
from palisade.catalog.permissions import Permissions, Privilege, Subject
from palisade.service.authorization.needs import Need
from palisade.wire.auth_errors import PermissionDenied, PermissionsUnknown, Unauthenticated

READINGS = 4
"""How many times the roles of a user are read while its row changes."""


@dataclass(frozen=True, slots=True)
class PermissionRow:
    value: bytes
    mod_revision: int


RightsReads = Generator[bytes, PermissionRow | None, "UserRights"]


@dataclass(frozen=True, slots=True)
class UserIdentity:
    """`credential`: revision of the password that was presented, or for which the token was issued. `expires_ms`: wall
    clock."""

    user: str
    credential: int
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """A node of the cluster: it has presented the join token."""

    expires_ms: ClassVar[None] = None


class Rights(Protocol):
    """`name`: for the audit log. `readable`, `writable`: a key that begins with one of these prefixes, and is not below
    `palisade/`, may be read or written; `check` decides about every other key."""

    readable: tuple[bytes, ...]
    writable: tuple[bytes, ...]

    @property
    def name(self) -> str: ...

    @property
    def is_node(self) -> bool: ...

    def check(self, needs: Iterable[Need]) -> None:
        """Raises PermissionDenied."""
        ...


class UserRights:
    is_node = False

    def __init__(self, user: str, permissions: Permissions) -> None:
        self.user = user
        self._permissions = permissions
        self.readable = permissions.prefixes(user, Privilege.READ)
        self.writable = permissions.prefixes(user, Privilege.WRITE)

    @property
    def name(self) -> str:
        return f"user {self.user}"

    def check(self, needs: Iterable[Need]) -> None:
        for need in needs:
            decision = self._permissions.may(self.user, need.privilege, need.key, need.range_end)
            if not decision.allowed:
                raise PermissionDenied(f"user {self.user} needs {need}: a user with admin can grant it")


class NodeRights:
    """A node receives every key anyway (the feed). It cannot write on behalf of users."""

    is_node = True
    name = "a node"
    readable: tuple[bytes, ...] = (b"",)
    writable: tuple[bytes, ...] = ()

    def check(self, needs: Iterable[Need]) -> None:
        for need in needs:
            if need.privilege is not Privilege.READ:
                raise PermissionDenied(
                    f"a join token does not grant {need}: sign in as a user (PALISADE_USER, or --user where a command "
                    "has it)"
                )


class PermissionCache:
    """Parsed permission rows, cached by the rows themselves."""

    def __init__(self, kept_max: int = 1024) -> None:
        self._kept_max = kept_max
        self._kept: dict[tuple[tuple[bytes, PermissionRow], ...], UserRights] = {}
        self._roles: dict[PermissionRow, tuple[str, ...]] = {}

    def roles(self, key: bytes, row: PermissionRow) -> tuple[str, ...]:
        """Roles in the row of a user."""
        found = self._roles.get(row)
        if found is None:
            if len(self._roles) >= self._kept_max:
                self._roles.clear()
            found = self._roles[row] = roles_of(key, row)
        return found

    def of(self, user: str, rows: tuple[tuple[bytes, PermissionRow], ...]) -> UserRights:
        found = self._kept.get(rows)
        if found is None:
            if len(self._kept) >= self._kept_max:
                self._kept.clear()
            found = self._kept[rows] = UserRights(user, Permissions.of({key: row.value for key, row in rows}))
        return found


def read_rights(identity: UserIdentity, cache: PermissionCache) -> RightsReads:
    """Yields the keys of rows, is sent the rows. Raises Unauthenticated, PermissionsUnknown."""
    own, secret = keys.at(keys.USERS, identity.user), keys.at(keys.CREDENTIALS, identity.user)
    row = yield own
    for _ in range(READINGS):
        credential = yield secret
        if row is None or credential is None or credential.mod_revision != identity.credential:
            raise Unauthenticated("the user was deleted or its password was changed: sign in again")
        rows = [(own, row)]
        roles = cache.roles(own, row)
        for role in roles:
            key = keys.at(keys.ROLES, role)
            found = yield key
            if found is not None:
                rows.append((key, found))
        if not roles:
            return cache.of(identity.user, tuple(rows))
        again = yield own
        if again == row:
            return cache.of(identity.user, tuple(rows))
        row = again
    raise PermissionsUnknown(f"the permissions changed {READINGS} times while they were read: retry")


def roles_of(key: bytes, row: PermissionRow) -> tuple[str, ...]:
    """Empty for a row that cannot be parsed: it grants nothing."""
    try:
        return Subject.from_bytes(key, row.value).roles
    except DamagedRow:
        return ()
