"""Reasons why authorization refuses a request. One tree; a refused request was not executed.

The texts go to clients: they name the missing right, and never a secret or whether a user exists.
"""

from __future__ import annotations

from palisade.base.errors import PalisadeError

WRONG_PASSWORD = "wrong user name or password"


class AuthorizationError(PalisadeError):
    """Root."""

    retry = False


class Unauthenticated(AuthorizationError):
    """The sender is unknown, or its sign-in has expired: sign in (again)."""

    code = "unauthenticated"


class NoCredentials(Unauthenticated):
    """The request has no credentials."""


class WrongPassword(Unauthenticated):
    """Wrong user name or password; does not disclose whether the user exists."""


class PermissionDenied(AuthorizationError):
    """The user is known and lacks a right for the request. A user with ADMIN can grant it."""

    code = "permission-denied"


class PermissionsUnknown(AuthorizationError):
    """This node cannot verify the current permissions, so it refuses everything (policy `deny`, F7)."""

    code = "permissions-unknown"
    retry = True


class NoUserYet(PermissionsUnknown):
    """The cluster has no user yet, so no password can be right: retry once the first user is created."""

    code = "no-user-yet"


class TooManyLogins(AuthorizationError):
    """Too many wrong passwords, or too many checks in progress: retry later."""

    code = "too-many-logins"
    retry = True


class AuthorizationOff(AuthorizationError):
    """A sign-in at a node whose authorization is off: not needed."""

    code = "authorization-off"
