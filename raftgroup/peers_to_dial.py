"""Whom a member keeps connected with: the members that it knows of, and those who know more than it does.

A member answers on connections that it has dialled itself. One that joins knows no member at all yet, and one that
was away may be addressed by a leader that joined meanwhile; so whoever greets with a newer membership is dialled back,
until this node's own log has come as far. Who greets from another port than the membership says has moved, or never had
one; it is dialled where it is, until the membership says the same. Who is removed is let go a moment after that is
committed, and not before: the change may be undone, and who asked for its own removal is to hear the end of it.
"""

from __future__ import annotations

from palisade.raftgroup.founding import Greeting
from palisade.raftgroup.membership import Membership

FAREWELL_S = 1.0
"""What was sent last to a member arrives on one connection, and that it is let go shows on another one as well."""


class Contacts:
    def __init__(self, own_id: str) -> None:
        self._own_id = own_id
        self._guests: dict[str, Greeting] = {}
        self._lately: dict[str, tuple[str, float]] = {}
        """Members, where they are, and when they still were members; for as long as they are contacts."""

    def met(self, greeting: Greeting) -> None:
        """Somebody was let in."""
        self._guests[greeting.member] = greeting

    def guests(self, membership: Membership) -> dict[str, str]:
        """Member -> 'host:port' of those who know more than `membership`."""
        return {
            member: guest.address
            for member, guest in self._guests.items()
            if guest.address and guest.version > membership.version
        }

    def wanted(self, membership: Membership, committed: Membership, now: float) -> dict[str, str]:
        """Member -> 'host:port' of those to be connected with, for a node that goes by `membership`. `now`: monotonic,
        in seconds."""
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
    """A host has many names, so it is the port that tells."""
    member = membership.get(guest.member)
    if member is None or member.incarnation != guest.incarnation or not guest.address:
        return False
    return guest.address.rpartition(":")[2] != member.addresses.get("peer", "").rpartition(":")[2]
