"""On whose behalf a request is made: what it may touch is asked of its caller, once, by `KeyValues`.

A protocol finds out the caller (a header, a session) and hands it on; it never decides what the caller may do.
"""

from __future__ import annotations

from palisade.service.authorization.needs import Needs


class Caller:
    """May do everything that users may do: authorization is off, or the embedding program asks.

    `is_limited`: `require` has to be asked. `writes_own`: may write the cluster's own keys (`palisade/`).
    """

    __slots__ = ()
    is_limited = False
    writes_own = False

    def require(self, needs: Needs) -> None:
        """Raises the refusal of a caller that lacks one of these rights."""


class ThisNodeCaller(Caller):
    """The node itself."""

    __slots__ = ()
    writes_own = True


EVERYBODY = Caller()
THIS_NODE = ThisNodeCaller()
