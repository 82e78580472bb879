"""Everything that a Raft group may answer instead of a result.

One tree; `retry` says whether the same request may simply be sent again.
"""

from __future__ import annotations

from palisade.base.errors import PalisadeError


class RaftError(PalisadeError):
    """Root of the errors of this package. `retry`: sending the same request again is safe and may help."""

    retry = False


class Unavailable(RaftError):
    """Nothing was done: there is no leader, or the leader has lost its majority."""

    code = "unavailable"
    retry = True


class NotLeader(Unavailable):
    """Nothing was done: this node does not lead. `leader` is the member that probably does, if one is known."""

    code = "not-leader"

    def __init__(self, leader: str | None) -> None:
        hint = f"ask {leader}" if leader else "no leader is known yet, try again"
        super().__init__(f"this node does not lead the group: {hint}")
        self.leader = leader


class OutcomeUnknown(RaftError):
    """The command may or may not be applied, now or later. Safe to retry only with a request id (M3)."""

    code = "outcome-unknown"


class MembershipRefused(RaftError):
    """A change of membership that is not possible now; the text says why. Nothing was changed."""

    code = "membership-refused"


class NodeFailed(RaftError):
    """This node stopped itself: its state can no longer be trusted, or its storage failed (issue 2, fault 12)."""

    code = "node-failed"


class MemberRemoved(NodeFailed):
    """This node was removed from the group: it serves nothing and ends. Under its id only a new storage may join."""

    code = "member-removed"


class MustJoin(MemberRemoved):
    """This node has a new storage under the id of a removed member: only joining lets it in."""


class JournalCorrupt(NodeFailed):
    """A stored byte is not what was written; never served, and the text names the place and the remedy."""


class DataDirectoryError(NodeFailed):
    """The data directory belongs to another node or cluster, has a newer format, or can't be written."""
