"""The identity of a caller, and its rights as of one moment. Pure.

The rights of a user are those of its row and of the rows of its roles. `course` requests the rows, which are read
through the fence (`rows.py`), and at the end the row of the user once more: so the roles were those of the user when
they were read. `Meaning` caches what rows mean, never that they are still current.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Protocol

from palisade.catalog import keys
from palisade.catalog.errors import DamagedRow
from palisade.catalog.permissions import PALISADE, Permissions, Privilege, Subject
from palisade.service.authorization.needs import Need
from palisade.wire.auth_errors import PermissionDenied, PermissionsUnknown, Unauthenticated

READINGS = 4
"""How many times the roles of a user are read while its row changes."""


@dataclass(frozen=True, slots=True)
class PermissionRow:
    value: bytes
    mod_revision: int


Course = Generator[bytes, PermissionRow | None, "UserRights"]


@dataclass(frozen=True, slots=True)
class UserIdentity:
    """`credential`: revision of the password that was shown, or for which the token was issued. `expires_ms`: wall
    clock."""

    user: str
    credential: int
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """A node of the cluster: it has proved that it has the join token."""


class Rights(Protocol):
    """`who`: for the log."""

    @property
    def who(self) -> str: ...

    @property
    def is_node(self) -> bool: ...

    def check(self, needs: Iterable[Need]) -> None:
        """Raises PermissionDenied."""
        ...

    def may_write(self, key: bytes) -> bool:
        """Whether it may certainly write this key; False: `check` decides."""
        ...


class UserRights:
    is_node = False

    def __init__(self, user: str, permissions: Permissions) -> None:
        self.user = user
        self._permissions = permissions
        self._writable = permissions.writable(user)

    @property
    def who(self) -> str:
        return f"user {self.user}"

    def check(self, needs: Iterable[Need]) -> None:
        for need in needs:
            decision = self._permissions.may(self.user, need.privilege, need.key, need.range_end)
            if not decision.allowed:
                raise PermissionDenied(f"user {self.user} needs {need}: ask somebody with admin to grant it")

    def may_write(self, key: bytes) -> bool:
        return key.startswith(self._writable) and not key.startswith(PALISADE)


class NodeRights:
    """A node receives every key anyway (the feed). It writes nothing on behalf of users."""

    is_node = True
    who = "a node"

    def check(self, needs: Iterable[Need]) -> None:
        for need in needs:
            if need.privilege is not Privilege.READ:
                raise PermissionDenied(f"the join token lets nodes in, and gives nobody {need}: show a user")

    def may_write(self, key: bytes) -> bool:
        return False


class Meaning:
    """A cache of what rows of permissions mean, by the rows themselves."""

    def __init__(self, kept_max: int = 1024) -> None:
        self._kept_max = kept_max
        self._kept: dict[tuple[tuple[bytes, PermissionRow], ...], UserRights] = {}
        self._roles: dict[PermissionRow, tuple[str, ...]] = {}

    def roles(self, key: bytes, row: PermissionRow) -> tuple[str, ...]:
        """Of the row of a user."""
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


def course(identity: UserIdentity, meaning: Meaning) -> Course:
    """Yields the keys of rows, is sent the rows. Raises Unauthenticated, PermissionsUnknown."""
    own, secret = keys.at(keys.USERS, identity.user), keys.at(keys.CREDENTIALS, identity.user)
    row = yield own
    for _ in range(READINGS):
        credential = yield secret
        if row is None or credential is None or credential.mod_revision != identity.credential:
            raise Unauthenticated("the user is gone or has another password now: sign in again")
        rows = [(own, row)]
        roles = meaning.roles(own, row)
        for role in roles:
            key = keys.at(keys.ROLES, role)
            found = yield key
            if found is not None:
                rows.append((key, found))
        if not roles:
            return meaning.of(identity.user, tuple(rows))
        again = yield own
        if again == row:
            return meaning.of(identity.user, tuple(rows))
        row = again
    raise PermissionsUnknown("the permissions change faster than they can be read: try again")


def roles_of(key: bytes, row: PermissionRow) -> tuple[str, ...]:
    """None of them for a row that can't be read: it allows nothing."""
    try:
        return Subject.from_bytes(key, row.value).roles
    except DamagedRow:
        return ()
