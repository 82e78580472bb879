"""Whom a member keeps connected with: the members that it knows of, and those who know more than it does.

A member answers on connections that it has dialled itself. One that joins knows no member at all yet, and one that
was away may be addressed by a leader that joined meanwhile; so whoever greets with a newer membership is dialled back,
until this node's own log has come as far. Who greets from another port than the membership says has moved, or never had
one; it is dialled where it is, until the membership says the same.
"""

from __future__ import annotations

from raftgroup.bootstrap import Greeting
from raftgroup.membership import Membership


class Contacts:
    def __init__(self, own_id: str) -> None:
        self._own_id = own_id
        self._guests: dict[str, Greeting] = {}

    def met(self, greeting: Greeting) -> None:
        """Somebody was let in."""
        self._guests[greeting.member] = greeting

    def wanted(self, membership: Membership) -> dict[str, str]:
        """Member -> 'host:port' of those to be connected with, for a node that goes by `membership`."""
        moved = {member: guest for member, guest in self._guests.items() if _has_moved(guest, membership)}
        newer = {member: guest for member, guest in self._guests.items() if guest.version > membership.version}
        self._guests = newer | moved
        addresses = {member: guest.address for member, guest in newer.items() if guest.address}
        for member in membership.members:
            if member.id != self._own_id and "peer" in member.addresses:
                addresses[member.id] = member.addresses["peer"]
        return addresses | {member: guest.address for member, guest in moved.items()}


def _has_moved(guest: Greeting, membership: Membership) -> bool:
    """A host has many names, so it is the port that tells."""
    member = membership.get(guest.member)
    if member is None or member.incarnation != guest.incarnation or not guest.address:
        return False
    return guest.address.rpartition(":")[2] != member.addresses.get("peer", "").rpartition(":")[2]
