"""Users, roles and grants, and the decisions based on them. Pure.

A grant is a privilege on a prefix of keys. A user has its own grants and those of its roles. Everything else is denied,
also if rows are missing or unreadable. The rows are in a region with policy `deny`: a node that cannot verify their
current state asks the quorum, and denies if that fails (seed 000).

Only ADMIN may access the rows of permissions, which include password hashes, for reading, for writing or through
procedures: access to them would permit acting as any user.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from palisade.catalog import keys
from palisade.catalog.errors import AlreadyThere, BadField, DamagedRow, NotThere
from palisade.catalog.row_format import a_choice, a_name, from_bytes, list_of, object_of, text_up_to, to_bytes
from palisade.metastore.requests import FROM_KEY, prefix_end

PREFIX_MAX = 1024
GRANTS_MAX = 500
ROLES_MAX = 100
PALISADE = b"palisade/"


class Privilege(enum.Enum):
    """READ and WRITE: access to keys. CATALOG: procedures on the objects below them. ADMIN: all of these."""

    READ = "read"
    WRITE = "write"
    CATALOG = "catalog"
    ADMIN = "admin"


PRIVILEGES = tuple(each.value for each in Privilege)
a_privilege = a_choice(PRIVILEGES)
a_prefix = text_up_to(PREFIX_MAX)
stored_grant = object_of({"privilege": a_privilege, "prefix": a_prefix}, {})


@dataclass(frozen=True, slots=True, order=True)
class PermissionGrant:
    """`prefix`: "" for every key."""

    privilege: str
    prefix: str

    def as_dict(self) -> dict[str, str]:
        return {"privilege": self.privilege, "prefix": self.prefix}

    def allows(self, wanted: Privilege, key: bytes, range_end: bytes = b"") -> bool:
        """Whether the grant covers the key, or every key of [key, range_end)."""
        if self.privilege not in (wanted.value, Privilege.ADMIN.value):
            return False
        prefix = self.prefix.encode()
        if not prefix:
            return True
        if not key.startswith(prefix):
            return False
        end = prefix_end(prefix)
        return not range_end or end == FROM_KEY or (range_end != FROM_KEY and range_end <= end)


@dataclass(frozen=True, slots=True)
class Subject:
    """A user or a role. `roles`: empty for a role."""

    kind: str
    name: str
    grants: tuple[PermissionGrant, ...] = ()
    roles: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return f"{self.kind}:{self.name}"

    @property
    def key(self) -> bytes:
        return subject_key(self.text)

    @property
    def administers(self) -> bool:
        """Whether its own grants permit everything, the management of users included."""
        return PermissionGrant(Privilege.ADMIN.value, "") in self.grants

    def with_grant(self, grant: PermissionGrant) -> Subject:
        if grant in self.grants:
            raise AlreadyThere(f"subject: {self.text} already has {grant.privilege} on {grant.prefix!r}")
        if len(self.grants) >= GRANTS_MAX:
            raise BadField(f"subject: {self.text} has {GRANTS_MAX} grants, which is the limit: grant shorter prefixes")
        return replace(self, grants=tuple(sorted((*self.grants, grant))))

    def without_grant(self, grant: PermissionGrant) -> Subject:
        if grant not in self.grants:
            raise NotThere(f"subject: {self.text} has no {grant.privilege} on {grant.prefix!r}")
        return replace(self, grants=tuple(each for each in self.grants if each != grant))

    def with_role(self, role: str) -> Subject:
        if role in self.roles:
            raise AlreadyThere(f"user: {self.name} already has the role {role}")
        if len(self.roles) >= ROLES_MAX:
            raise BadField(f"user: {self.name} has {ROLES_MAX} roles, which is the limit")
        return replace(self, roles=tuple(sorted((*self.roles, role))))

    def without_role(self, role: str) -> Subject:
        if role not in self.roles:
            raise NotThere(f"user: {self.name} has no role {role}")
        return replace(self, roles=tuple(each for each in self.roles if each != role))

    def to_bytes(self) -> bytes:
        fixed: dict[str, Any] = {"name": self.name, "grants": [each.as_dict() for each in self.grants]}
        return to_bytes(fixed | ({"roles": list(self.roles)} if self.kind == "user" else {}))

    @staticmethod
    def from_bytes(key: bytes, packed: bytes) -> Subject:
        """Raises DamagedRow."""

        def read(value: Any) -> Subject:
            return Subject(
                "user" if key.startswith(keys.USERS) else "role",
                a_name(value["name"], "name"),
                tuple(
                    PermissionGrant(**each) for each in list_of(stored_grant, GRANTS_MAX, 0)(value["grants"], "grants")
                ),
                tuple(list_of(a_name, ROLES_MAX, 0)(value.get("roles", []), "roles")),
            )

        return from_bytes(key, packed, read)


def a_subject(value: Any, field: str) -> str:
    """`user:<name>` or `role:<name>`."""
    kind, colon, name = value.partition(":") if type(value) is str else ("", "", "")
    if kind not in ("user", "role") or not colon:
        raise BadField(f"{field}: {value!r:.60} is neither user:<name> nor role:<name>")
    return f"{kind}:{a_name(name, field)}"


def subject_key(subject: str) -> bytes:
    kind, _, name = subject.partition(":")
    return keys.at(keys.USERS if kind == "user" else keys.ROLES, name)


@dataclass(frozen=True, slots=True)
class Decision:
    """`reason`: the grant that allows the access, or the missing privilege."""

    allowed: bool
    reason: str


class Permissions:
    """All users and roles, as of one revision."""

    def __init__(self, subjects: Iterable[Subject]) -> None:
        self._subjects = {each.text: each for each in subjects}

    @staticmethod
    def of(rows: Mapping[bytes, bytes]) -> Permissions:
        """`rows`: key -> value of the rows below `keys.USERS` and `keys.ROLES`. An unreadable row grants nothing."""
        found = []
        for key, packed in rows.items():
            if key.startswith((keys.USERS, keys.ROLES)):
                try:
                    subject = Subject.from_bytes(key, packed)
                except DamagedRow:
                    continue
                if subject.key == key:
                    found.append(subject)
        return Permissions(found)

    def may(self, user: str, action: Privilege, key: bytes, range_end: bytes = b"") -> Decision:
        """Whether `user` may perform `action` on the key, or on every key of [key, range_end)."""
        wanted = Privilege.ADMIN if is_for_admins(action, key, range_end) else action
        found = self._subjects.get(f"user:{user}")
        if found is None:
            return Decision(False, f"there is no user {user}")
        for subject in (found, *self._roles(found)):
            for grant in subject.grants:
                if grant.allows(wanted, key, range_end):
                    return Decision(True, f"{subject.text} has {grant.privilege} on {grant.prefix!r}")
        return Decision(
            False, f"user {user} has no {wanted.value} on {key.decode('utf-8', 'backslashreplace')[:100]!r}"
        )

    def prefixes(self, user: str, privilege: Privilege) -> tuple[bytes, ...]:
        """The prefixes of the keys outside of `PALISADE` that `user` may read or write: `may` as one comparison."""
        found = self._subjects.get(f"user:{user}")
        subjects = () if found is None else (found, *self._roles(found))
        wanted = (privilege.value, Privilege.ADMIN.value)
        grants = (grant for subject in subjects for grant in subject.grants if grant.privilege in wanted)
        return tuple(dict.fromkeys(grant.prefix.encode("utf-8", "surrogatepass") for grant in grants))

    def _roles(self, user: Subject) -> list[Subject]:
        found = (self._subjects.get(f"role:{name}") for name in user.roles)
        return [role for role in found if role is not None]


def is_for_admins(action: Privilege, key: bytes, range_end: bytes) -> bool:
    """Whether only ADMIN permits it: any access to permissions or to the records of procedures, which contain password
    hashes, and every direct write below palisade/."""
    if touches(key, range_end, keys.PERMISSIONS) or touches(key, range_end, keys.PROCEDURES):
        return True
    return action is Privilege.WRITE and touches(key, range_end, PALISADE)


def touches(key: bytes, range_end: bytes, place: bytes) -> bool:
    """Whether the key, or a key of the range, is below `place`."""
    if not range_end:
        return key.startswith(place)
    return key < prefix_end(place) and (range_end == FROM_KEY or range_end > place)
