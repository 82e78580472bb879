"""What becomes of a node that wants to join. One tree."""

from __future__ import annotations

from base.errors import PalisadeError
from node.topology.verdicts import Reject


class TopologyError(PalisadeError):
    """Root of the errors of this package. `retry`: the same request may help later."""

    retry = False


class JoinRejected(TopologyError):
    """A node is refused for good; `verdict` says why and what to do."""

    code = "join-rejected"

    def __init__(self, verdict: Reject) -> None:
        super().__init__(verdict.text)
        self.verdict = verdict


class JoinLater(TopologyError):
    """Not now: the same request may succeed in a moment."""

    code = "join-later"
    retry = True


class NodeRefused(TopologyError):
    """The cluster does not take this node: the text says why and what to do. The node stops."""


class AlreadyInitialized(TopologyError):
    """The cluster was initialized, with other members than are asked for now."""

    code = "already-initialized"
