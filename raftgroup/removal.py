"""Whether this member was removed from the group. A removed member serves nothing from that moment, and ends.

Its own log contains the committed removal. A member that was offline learns of it from the refusals of the others:
they decide by committed memberships, and refuse only a node whose own membership is not newer. Thus a refusal counts at
once for a node whose newest membership is committed and contains it. Otherwise it counts only while no member is
connected for some time: a lagging member may know the removal and not yet that the node was added again.

A node that joins again under its old id has a new storage, and replays memberships of its past, also its removal. That
removal is not its own: only a storage that was a member, or a founding one, can be removed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

from palisade.raftgroup.errors import MemberRemoved, MustJoin
from palisade.raftgroup.founding import is_removal
from palisade.raftgroup.replica import Replica

FAREWELL_S = 1.0
"""Time for which a removed member keeps running: a client that removed it through itself gets the response."""
REFUSED_S = 1.0
"""Time for which all others must refuse it if its own log does not decide."""


class Removal:
    """`end`: ends the node. `founds`: this node was started as a founding member, so it does not ask to join."""

    def __init__(self, cluster: str, replica: Replica, end: Callable[[MemberRemoved], None], *, founds: bool) -> None:
        self._cluster, self._replica, self._end, self._founds = cluster, replica, end, founds
        self._refused_since: float | None = None
        self.error: MemberRemoved | None = None
        """Set once this member was found to be removed."""

    def check_log(self) -> None:
        """End this node if its log has its committed removal."""
        replica = self._replica
        if self.error is not None or not replica.is_removed or not replica.membership_settled():
            return
        if self._was_member():
            self._end_removed_member()

    def check_refusals(self, refusals: Mapping[str, str], connected: Set[str], now: float) -> None:
        """End this node if the others refuse it because it was removed."""
        replica = self._replica
        own = replica.identity
        refused = any(is_removal(reason, own.member) for reason in refusals.values())
        is_member, settled = replica.is_known(own.member, own.incarnation), replica.membership_settled()
        if self.error is not None or not refused or not self._was_member():
            return
        if is_member and settled:
            self._end_removed_member()
        elif connected or is_member:
            self._refused_since = None
        elif self._refused_since is None:
            self._refused_since = now
        elif now - self._refused_since >= REFUSED_S:
            self._end_removed_member()

    def _was_member(self) -> bool:
        return self._founds or self._replica.has_belonged

    def _end_removed_member(self) -> None:
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
        self._end(self.error)
