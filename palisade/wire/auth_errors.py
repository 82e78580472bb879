"""Why authorization refuses a request. One tree; nothing was done of a request that ended so.

The texts go to clients: they name what is missing, never whether a user exists, and never a secret.
"""

from __future__ import annotations

from palisade.base.errors import PalisadeError


class AuthorizationError(PalisadeError):
    """Root."""

    retry = False


class Unauthenticated(AuthorizationError):
    """Who asks is not known, or not any more: sign in (again)."""

    code = "unauthenticated"


class NoCredentials(Unauthenticated):
    """Nothing was shown at all."""


class WrongPassword(Unauthenticated):
    """User and password do not belong together; whether there is such a user is not said."""


class PermissionDenied(AuthorizationError):
    """Who asks is known, and may not do this. Somebody with ADMIN can grant it."""

    code = "permission-denied"


class PermissionsUnknown(AuthorizationError):
    """The permissions as they are now can't be known here, so everything is refused (policy `deny`, F7)."""

    code = "permissions-unknown"
    retry = True


class TooManyLogins(AuthorizationError):
    """Passwords were wrong too often, or too many are being checked: later."""

    code = "too-many-logins"
    retry = True


class AuthorizationOff(AuthorizationError):
    """Somebody signs in at a node that asks nobody who they are: not needed."""

    code = "authorization-off"
