"""The nodes that a member keeps connected: known members, and nodes with a newer membership.

A member answers on connections that it has dialled itself. A joining node knows no member yet, and a node that was away
may receive messages of a leader that joined meanwhile. Thus a node that greets with a newer membership is dialled back
until this node's own log has caught up. A node that greets from another port than in the membership has moved, or had
no address before; it is dialled there until the membership has the same address. A removed node is disconnected a
moment after its removal is committed, and not before: the change may be undone, and a node that requested its own
removal must receive the result.
"""

from __future__ import annotations

from palisade.raftgroup.founding import Greeting
from palisade.raftgroup.membership import Membership

FAREWELL_S = 1.0
"""The last message to a member arrives on one connection, and its removal becomes visible on another one as well."""


class Contacts:
    def __init__(self, own_id: str) -> None:
        self._own_id = own_id
        self._guests: dict[str, Greeting] = {}
        self._lately: dict[str, tuple[str, float]] = {}
        """Members, their addresses, and when they were last members; kept as long as they are contacts."""

    def met(self, greeting: Greeting) -> None:
        """A node was admitted."""
        self._guests[greeting.member] = greeting

    def guests(self, membership: Membership) -> dict[str, str]:
        """Member -> 'host:port' of the nodes with a newer membership than `membership`."""
        return {
            member: guest.address
            for member, guest in self._guests.items()
            if guest.address and guest.version > membership.version
        }

    def wanted(self, membership: Membership, committed: Membership, now: float) -> dict[str, str]:
        """Member -> 'host:port' of the nodes to connect with, for a node with this `membership`. `now`: monotonic, in
        seconds."""
        guests = self.guests(membership)
        moved = {member: each.address for member, each in self._guests.items() if _has_moved(each, membership)}
        self._guests = {member: each for member, each in self._guests.items() if member in guests or member in moved}
        members = {
            member.id: member.addresses["peer"]
            for member in membership.members
            if member.id != self._own_id and "peer" in member.addresses
        }
        members |= moved
        return self._of_now_and_lately(members, committed, now) | guests | members

    def _of_now_and_lately(self, members: dict[str, str], committed: Membership, now: float) -> dict[str, str]:
        still = {member: at for member, (at, _) in self._lately.items() if committed.get(member) is not None}
        lately = self._lately | {member: (at, now) for member, at in (still | members).items()}
        self._lately = {member: known for member, known in lately.items() if now - known[1] < FAREWELL_S}
        return {member: at for member, (at, _) in self._lately.items()}


def _has_moved(guest: Greeting, membership: Membership) -> bool:
    """Whether its port differs from that in the membership. The hosts are not compared: a host may have several
    names."""
    member = membership.get(guest.member)
    if member is None or member.incarnation != guest.incarnation or not guest.address:
        return False
    return guest.address.rpartition(":")[2] != member.addresses.get("peer", "").rpartition(":")[2]
