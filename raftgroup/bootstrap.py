"""How a new group comes to know its members' storages, and how a wiped one is told apart from a new one.

Each storage gets a random name, its incarnation, when it is made. A founding member takes part in elections only once
it has seen the incarnation of *every* other founding member; that complete map is the first membership, and from then
on what another storage says under one of these ids counts for nothing. So a founding member that lost its disk can't
vote twice: those who know it refuse it, and it can't complete a map of its own, for a founded member tells it so.
Price: the first start needs all founding members; later ones need a majority.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raftgroup.errors import DataDirectoryError
from raftgroup.membership import Member, MemberRole, Membership


@dataclass(frozen=True, slots=True)
class Greeting:
    """What a node says of itself in the handshake. `knows`: the incarnations of the membership that it goes by."""

    cluster: str
    member: str
    incarnation: str
    knows: Mapping[str, str]

    def to_wire(self) -> dict[str, Any]:
        return {
            "cluster": self.cluster,
            "member": self.member,
            "incarnation": self.incarnation,
            "knows": dict(self.knows),
        }

    @staticmethod
    def from_wire(wire: Mapping[str, Any]) -> Greeting:
        """Raises ValueError, naming the field, for a greeting that is none."""
        for name in ("cluster", "member", "incarnation"):
            if not isinstance(wire.get(name), str):
                raise ValueError(f"the greeting has no text field {name!r}")
        knows = wire.get("knows")
        if not isinstance(knows, dict) or not all(isinstance(each, str) for pair in knows.items() for each in pair):
            raise ValueError("the greeting's field 'knows' is not a map of texts")
        return Greeting(wire["cluster"], wire["member"], wire["incarnation"], knows)


class Founding:
    """Collects the incarnations of the founding members. `addresses`: founding member -> its addresses."""

    def __init__(self, own: Greeting, addresses: Mapping[str, Mapping[str, str]]) -> None:
        self._own = own
        self._addresses = addresses
        self._incarnations = {own.member: own.incarnation}

    def provisional(self) -> Membership:
        """Whom to talk to meanwhile; nobody's incarnation is known, so nobody votes."""
        return self._membership(dict.fromkeys(self._addresses, ""))

    def saw(self, greeting: Greeting) -> Membership | None:
        """The first membership, once it is complete."""
        if self._own.member in greeting.knows and set(self._addresses) <= set(greeting.knows):
            self._incarnations = {member: greeting.knows[member] for member in self._addresses}
        elif greeting.member in self._addresses:
            self._incarnations[greeting.member] = greeting.incarnation
        return self.complete()

    def complete(self) -> Membership | None:
        if set(self._incarnations) != set(self._addresses):
            return None
        return self._membership(self._incarnations)

    def missing(self) -> list[str]:
        return sorted(set(self._addresses) - set(self._incarnations))

    def _membership(self, incarnations: Mapping[str, str]) -> Membership:
        return Membership(
            tuple(
                Member(member, MemberRole.VOTER, incarnations[member], self._addresses[member])
                for member in sorted(self._addresses)
            )
        )


class Introductions:
    """What this node says of itself to others, and whether it talks to them. `founding` is None once it is over."""

    def __init__(self, own: Greeting, founding: Founding | None) -> None:
        self._own = own
        self._founding = founding

    def missing_founders(self) -> list[str]:
        """The group can't start before they were seen."""
        return self._founding.missing() if self._founding else []

    def greeting(self, membership: Membership) -> Greeting:
        knows = {} if self._founding else {member.id: member.incarnation for member in membership.members}
        return Greeting(self._own.cluster, self._own.member, self._own.incarnation, knows)

    def judge(self, greeting: Greeting, membership: Membership) -> str | None:
        """The reason of a refusal, or None. Raises DataDirectoryError when the other knows that this one was wiped."""
        reason = judge_greeting(greeting, self._own, membership)
        known_as = greeting.knows.get(self._own.member, self._own.incarnation)
        if reason is None and known_as != self._own.incarnation and membership.get(self._own.member) is not None:
            raise wiped(self._own.member, self._own.incarnation, known_as)
        return reason

    def found(self, greeting: Greeting | None) -> Membership | None:
        """The first membership, once, when everybody it needs has been seen."""
        if self._founding is None:
            return None
        membership = self._founding.complete() if greeting is None else self._founding.saw(greeting)
        if membership is not None:
            self._founding = None
        return membership


def judge_greeting(greeting: Greeting, own: Greeting, membership: Membership) -> str | None:
    """Why a connection is refused, or None. `membership`: the one that this node goes by."""
    if greeting.cluster != own.cluster:
        return f"this is cluster {own.cluster}, not {greeting.cluster}: check the addresses of both"
    if greeting.member == own.member:
        return f"two nodes are called {own.member}: give one of them another id"
    if greeting.member in membership.removed:
        return f"{greeting.member} was removed from the cluster: let it join again with an empty data directory"
    known = membership.get(greeting.member)
    if known is not None and known.incarnation not in ("", greeting.incarnation):
        return (
            f"{greeting.member} is known with storage {known.incarnation}, not {greeting.incarnation}: if its disk "
            "was lost, start it with --join and an empty data directory"
        )
    return None


def wiped(member: str, incarnation: str, known: str) -> DataDirectoryError:
    return DataDirectoryError(
        f"the cluster knows {member} with storage {known}, and this one is {incarnation}: the data directory was lost "
        "or swapped. Put the old one back, or start with --join and an empty data directory to come back as new"
    )
