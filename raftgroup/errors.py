"""The errors of a Raft group.

One tree; `retry` states whether the same request may be sent again.
"""

from __future__ import annotations

from palisade.base.errors import PalisadeError


class RaftError(PalisadeError):
    """Root of the errors of this package. `retry`: sending the same request again is safe and may succeed."""

    retry = False


class Unavailable(RaftError):
    """The request was not executed: there is no leader, or the leader has lost its majority."""

    code = "unavailable"
    retry = True


NO_MAJORITY = "no leader with a majority was found before the deadline; nothing was done, retry"
"""Of a read or a write that has waited for one until its deadline."""
NO_LEADER = "this node knows no leader of the group; retry, and see 'palisade status'"


class NotLeader(Unavailable):
    """The request was not executed: this node is not the leader. `leader` is the probable leader, if known."""

    code = "not-leader"

    def __init__(self, leader: str | None) -> None:
        known = f"this node is not the leader of the group: ask {leader}" if leader else NO_LEADER
        super().__init__(known)
        self.leader = leader


class OutcomeUnknown(RaftError):
    """The command may be applied, now or later, or not. Safe to retry only with a request id (M3)."""

    code = "outcome-unknown"


class MembershipRefused(RaftError):
    """A membership change that is not possible now; the text gives the reason. Nothing was changed."""

    code = "membership-refused"


class NodeFailed(RaftError):
    """This node stopped itself: its state cannot be trusted, or its storage failed (issue 2, fault 12)."""

    code = "node-failed"


class MemberRemoved(NodeFailed):
    """This node was removed from the group: it serves nothing and ends. Under its id only a new storage may join."""

    code = "member-removed"


class MustJoin(MemberRemoved):
    """This node has a new storage under the id of a removed member: only joining lets it in."""


class JournalCorrupt(NodeFailed):
    """Stored bytes were altered; they are never served. The text names the place and the remedy."""


class DataDirectoryError(NodeFailed):
    """The data directory belongs to another node or cluster, has a newer format, or can't be written."""


class StorageLost(DataDirectoryError):
    """The group knows this member with another storage: its data directory was lost or swapped."""
