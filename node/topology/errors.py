"""What becomes of a node that wants to join. One tree."""

from __future__ import annotations

import enum

from base.errors import PalisadeError


class Reason(enum.Enum):
    """Why a node is rejected. The names are stable: scenarios and the API show them."""

    WRONG_CLUSTER = "wrong-cluster"
    WRONG_VERSION = "wrong-version"
    NO_PERMISSION = "no-permission"
    FOREIGN_CLUSTER = "foreign-cluster"
    SUPERSEDED = "superseded"
    NOT_VALIDATED = "not-validated"


class TopologyError(PalisadeError):
    """Root of the errors of this package. `retry`: the same request may help later."""

    retry = False


class JoinRejected(TopologyError):
    """A node is refused for good; the text says why and what to do."""

    code = "join-rejected"

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class JoinLater(TopologyError):
    """Not now: the same request may succeed in a moment."""

    code = "join-later"
    retry = True


class NodeRefused(TopologyError):
    """The cluster does not take this node: the text says why and what to do. The node stops."""


class AlreadyInitialized(TopologyError):
    """The cluster was initialized, with other members than are asked for now."""

    code = "already-initialized"
