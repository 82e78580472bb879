"""The caller of a request: `KeyValues` checks it once for the rights that the request needs.

A protocol identifies the caller (a header, a session) and passes it on; it never decides what the caller may do.
"""

from __future__ import annotations

from collections.abc import Sequence

from palisade.service.authorization.needs import Needs


class Caller:
    """May do everything that users may do: authorization is off, or the embedding program is the caller.

    `is_limited`: `require` has to be called. `writes_own`: may write the cluster's own keys (`palisade/`).
    """

    __slots__ = ()
    is_limited = False
    writes_own = False

    def require(self, needs: Needs) -> None:
        """Raises the refusal of a caller that lacks one of these rights."""

    def require_read(self, key: bytes) -> None:
        """As `require`, for the right to read this key."""

    def require_write(self, key: bytes) -> None:
        """As `require`, for the right to write this key."""

    def require_writes(self, keys: Sequence[bytes]) -> None:
        """As `require`, for the right to write each of these keys."""


class ThisNodeCaller(Caller):
    """The node itself."""

    __slots__ = ()
    writes_own = True


UNRESTRICTED = Caller()
THIS_NODE = ThisNodeCaller()
