"""Whether this member was removed from the group. A removed member serves nothing from that moment, and ends.

Its own log says it, once the removal is committed. A member that was away finds it in the refusals of the others, who
judge by committed memberships, and refuse only a node whose own is not newer. So a refusal counts at once for a node
whose newest membership is committed and has it. Otherwise no member may be connected for a while: one that lags may
know of the removal and not yet of a later invitation.

A node that joins again under its old id has a new storage, and replays memberships of its past, also its removal. That
removal is not its own: only a storage that was a member, or a founding one, can be removed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

from palisade.raftgroup.errors import MemberRemoved, MustJoin
from palisade.raftgroup.founding import is_removal
from palisade.raftgroup.replica import Replica
from palisade.raftgroup.role import RaftRole

FAREWELL_S = 1.0
"""How long a removed member runs on: a client that asked it for its own removal gets the answer."""
REFUSED_S = 1.0
"""How long all others have to refuse it, where its own log leaves it open."""


class Removal:
    """`founds`: this node was started as a founding member, so it does not ask to join."""

    def __init__(self, cluster: str, replica: Replica, *, founds: bool) -> None:
        self._cluster, self._replica, self._founds = cluster, replica, founds
        self._refused_since: float | None = None
        self.error: MemberRemoved | None = None
        """Set once this member was found to be removed."""
        self.on_found: Callable[[MemberRemoved], object] = lambda _error: None
        """Called once, in the turn in which `error` is set."""

    def in_log(self) -> MemberRemoved | None:
        """The error, once, when the removal is committed."""
        replica = self._replica
        if self.error is not None or replica.role is not RaftRole.REMOVED or not replica.membership_settled():
            return None
        return self._found() if self._belonged() else None

    def in_refusals(self, refusals: Mapping[str, str], connected: Set[str], now: float) -> MemberRemoved | None:
        """The error, once, when a member refuses this node because it was removed."""
        replica = self._replica
        own = replica.identity
        refused = any(is_removal(reason, own.member) for reason in refusals.values())
        is_member, settled = replica.is_known(own.member, own.incarnation), replica.membership_settled()
        if self.error is not None or not refused or not self._belonged():
            return None
        if is_member and settled:
            return self._found()
        if connected or is_member:
            self._refused_since = None
            return None
        self._refused_since = now if self._refused_since is None else self._refused_since
        return self._found() if now - self._refused_since >= REFUSED_S else None

    def _belonged(self) -> bool:
        return self._founds or self._replica.has_belonged

    def _found(self) -> MemberRemoved:
        member = self._replica.identity.member
        if self._replica.has_belonged or self._replica.membership.version:
            self.error = MemberRemoved(
                f"{member} was removed from cluster {self._cluster} and serves nothing any more: use another node. To "
                "let it join again, start it with --join and an empty data directory"
            )
        else:
            self.error = MustJoin(
                f"cluster {self._cluster} has removed {member}, and the data directory of this node is new: start it "
                "with --join instead of --initial-cluster to let it join again"
            )
        self.on_found(self.error)
        return self.error
