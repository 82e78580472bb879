"""Operations on users, roles and grants. Pure.

None is ever rolled back (`OperationKind.keeps`, F8): a revoked permission that reappears, or a REVOKE that is reported
as failed although it is effective, would be worse than a pending one.
"""

from __future__ import annotations

from palisade.catalog import keys
from palisade.catalog.errors import AlreadyThere, BadField, DamagedRow, NotAllowed, NotThere
from palisade.catalog.operations.operation_kind import Drawn, Field, OperationKind, Request
from palisade.catalog.passwords import a_credential, a_password
from palisade.catalog.permissions import (
    PRIVILEGES,
    PermissionGrant,
    Privilege,
    Subject,
    a_prefix,
    a_privilege,
    a_subject,
    subject_key,
)
from palisade.catalog.plan import CatalogPlan, CatalogRows, Changes
from palisade.catalog.row_format import a_name, to_bytes

HOLDERS_MAX = 500


def a_secret(value: object, field: str) -> object:
    """A password, or the credential derived from one."""
    return a_credential(value, field) if isinstance(value, dict) else a_password(value, field)


USER = Field("user", a_name, "the name of the user")
ROLE = Field("role", a_name, "the name of the role")
SUBJECT = Field("subject", a_subject, "user:<name> or role:<name>")
PASSWORD = Field("password", a_secret, "8 to 256 characters", "password")
PRIVILEGE = Field("privilege", a_privilege, f"one of {', '.join(PRIVILEGES)}")
PREFIX = Field("prefix", a_prefix, "the prefix of the keys; empty for all of them")


def subject_at(rows: CatalogRows, subject: str) -> Subject:
    """Raises NotThere."""
    found = rows.read(subject_key(subject), Subject.from_bytes)
    if found is None:
        raise NotThere(f"there is no {subject.replace(':', ' ')}")
    return found


def credential_of(request: Request) -> bytes:
    if not isinstance(request["password"], dict):
        raise BadField("password: not hashed")
    return to_bytes(request["password"])


def with_an_administrator(rows: CatalogRows, changes: Changes) -> CatalogPlan:
    """The plan, unless it takes admin on all keys from the last user that has it: users could not be changed any more.

    The rows below the two prefixes are only candidates. The administrator that is found is read again as single rows,
    which the transaction compares. Thus if two concurrent plans each rely on the administrator that the other one
    removes, the second is refused and made again.

    Raises NotAllowed."""

    def now(key: bytes) -> Subject | None:
        """After the changes."""
        packed = changes[key] if key in changes else rows.get(key)
        return readable_subject(key, packed) if packed is not None else None

    def is_administrator(user: Subject | None) -> bool:
        if user is None or user.administers:
            return user is not None
        roles = (now(key) for key in map(role_key, user.roles) if key in with_admin)
        return any(role is not None and role.administers for role in roles)

    with_admin, was_one = administrators(rows, keys.ROLES), False
    for row in rows.below(keys.USERS):
        listed = readable_subject(row.key, row.value)
        if is_administrator(listed) and is_administrator(now(row.key)):
            return CatalogPlan(changes)
        was_one = was_one or (listed is not None and may_administer(listed, with_admin))
    if not was_one:
        return CatalogPlan(changes)
    raise NotAllowed(
        "no user with admin on all keys would remain, and users could not be changed any more: first grant another "
        "user admin on the prefix ''"
    )


def may_administer(user: Subject, with_admin: set[bytes]) -> bool:
    """`with_admin`: the keys of the roles that permit everything."""
    return user.administers or any(role_key(name) in with_admin for name in user.roles)


def administrators(rows: CatalogRows, prefix: bytes) -> set[bytes]:
    """The keys of the users or roles whose own grants permit everything."""
    found = (readable_subject(row.key, row.value) for row in rows.below(prefix))
    return {each.key for each in found if each is not None and each.administers}


def role_key(name: str) -> bytes:
    return subject_key(f"role:{name}")


def readable_subject(key: bytes, packed: bytes) -> Subject | None:
    """None if the row is damaged: it grants nothing."""
    try:
        return Subject.from_bytes(key, packed)
    except DamagedRow:
        return None


def create_user(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
    made = Subject("user", request["user"])
    if rows.get(made.key) is not None:
        raise AlreadyThere(f"user {made.name} already exists")
    return CatalogPlan({made.key: made.to_bytes(), keys.at(keys.CREDENTIALS, made.name): credential_of(request)})


def set_password(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
    found = subject_at(rows, f"user:{request['user']}")
    return CatalogPlan({keys.at(keys.CREDENTIALS, found.name): credential_of(request)})


def drop_user(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
    found = subject_at(rows, f"user:{request['user']}")
    changes = {found.key: None, keys.at(keys.CREDENTIALS, found.name): None}
    with_admin = administrators(rows, keys.ROLES) if found.roles else set()
    return with_an_administrator(rows, changes) if may_administer(found, with_admin) else CatalogPlan(changes)


def create_role(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
    made = Subject("role", request["role"])
    if rows.get(made.key) is not None:
        raise AlreadyThere(f"role {made.name} already exists")
    return CatalogPlan({made.key: made.to_bytes()})


def drop_role(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
    """Removes it from all its users in the same transaction, so a later role of that name has no users."""
    found = subject_at(rows, f"role:{request['role']}")
    changes: dict[bytes, bytes | None] = {found.key: None}
    for row in rows.below(keys.USERS):
        user = Subject.from_bytes(row.key, row.value)
        if found.name in user.roles:
            changes[user.key] = user.without_role(found.name).to_bytes()
    if len(changes) > HOLDERS_MAX + 1:
        raise NotAllowed(
            f"role {found.name} has {len(changes) - 1} users, the limit is {HOLDERS_MAX}: revoke it from some first"
        )
    return with_an_administrator(rows, changes) if found.administers else CatalogPlan(changes)


def one_subject(request: Request, rows: CatalogRows, *, add: bool) -> Changes:
    found = subject_at(rows, request["subject"])
    grant = PermissionGrant(request["privilege"], request["prefix"])
    after = found.with_grant(grant) if add else found.without_grant(grant)
    return {found.key: after.to_bytes()}


def grant(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
    return CatalogPlan(one_subject(request, rows, add=True))


def revoke(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
    changes = one_subject(request, rows, add=False)
    is_admin = (request["privilege"], request["prefix"]) == (Privilege.ADMIN.value, "")
    return with_an_administrator(rows, changes) if is_admin else CatalogPlan(changes)


def grant_role(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
    role = subject_at(rows, f"role:{request['role']}")
    user = subject_at(rows, f"user:{request['user']}")
    return CatalogPlan({user.key: user.with_role(role.name).to_bytes()})


def revoke_role(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
    user = subject_at(rows, f"user:{request['user']}")
    changes = {user.key: user.without_role(request["role"]).to_bytes()}
    role = rows.read(role_key(request["role"]), Subject.from_bytes)
    return with_an_administrator(rows, changes) if role is not None and role.administers else CatalogPlan(changes)


def users_lock(request: Request) -> tuple[str, ...]:
    return (f"permissions/users/{request['user']}/",)


def role_lock(request: Request) -> tuple[str, ...]:
    """Includes all users, because dropping a role changes its users."""
    return (f"permissions/roles/{request['role']}/", "permissions/users/")


def subject_lock(request: Request) -> tuple[str, ...]:
    kind, _, name = request["subject"].partition(":")
    return (f"permissions/{kind}s/{name}/",)


def new_role_lock(request: Request) -> tuple[str, ...]:
    return (f"permissions/roles/{request['role']}/",)


def both_locks(request: Request) -> tuple[str, ...]:
    return (*new_role_lock(request), *users_lock(request))


KINDS = tuple(
    OperationKind(name, text, fields, locks, plan, keeps=True, secret="password" if PASSWORD in fields else "")
    for name, text, fields, locks, plan in (
        ("create-user", "Create a user.", (USER, PASSWORD), users_lock, create_user),
        ("set-password", "Give a user another password.", (USER, PASSWORD), users_lock, set_password),
        ("drop-user", "Remove a user with all its permissions.", (USER,), users_lock, drop_user),
        ("create-role", "Create a role.", (ROLE,), new_role_lock, create_role),
        ("drop-role", "Remove a role, also from its users.", (ROLE,), role_lock, drop_role),
        ("grant", "Grant a user or role a privilege on keys.", (SUBJECT, PRIVILEGE, PREFIX), subject_lock, grant),
        ("revoke", "Revoke a privilege of a user or role.", (SUBJECT, PRIVILEGE, PREFIX), subject_lock, revoke),
        ("grant-role", "Grant a user a role.", (ROLE, USER), both_locks, grant_role),
        ("revoke-role", "Revoke a role of a user.", (ROLE, USER), both_locks, revoke_role),
    )
)
