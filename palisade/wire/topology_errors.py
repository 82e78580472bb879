"""Errors of joining a cluster and of its topology. One tree."""

from __future__ import annotations

import enum

from palisade.base.errors import PalisadeError


class Reason(enum.Enum):
    """Reasons to reject a node. The values are stable: scenarios and the API show them."""

    WRONG_CLUSTER = "wrong-cluster"
    WRONG_VERSION = "wrong-version"
    NO_PERMISSION = "no-permission"
    FOREIGN_CLUSTER = "foreign-cluster"
    SUPERSEDED = "superseded"
    NOT_VALIDATED = "not-validated"


class TopologyError(PalisadeError):
    """Root of the errors of topology. `retry`: the same request may succeed later."""

    retry = False


class JoinRejected(TopologyError):
    """The node is rejected permanently. The text gives the reason and the remedy."""

    code = "join-rejected"

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class JoinLater(TopologyError):
    """The request is not possible yet; the same request may succeed shortly."""

    code = "join-later"
    retry = True


class NodeRefused(TopologyError):
    """The cluster rejects this node, and the node stops. The text gives the reason and the remedy."""


class AlreadyInitialized(TopologyError):
    """The cluster is already initialized, with members other than the requested ones."""

    code = "already-initialized"
