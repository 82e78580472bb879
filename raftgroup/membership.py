"""The members of the group, voters and non-voting members (learners), as values.

A log entry replaces a membership as a whole; it is effective as soon as the entry is in the log (Raft thesis 4.1).
Consecutive memberships differ by at most one voter, so that any majority of one shares a voter with any majority of the
other. A member is an id *and* an incarnation, the random name of its storage: messages of a wiped node under its old id
are ignored until it has been added again (M11).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from palisade.raftgroup.errors import MembershipRefused

FIRST_GENERATION = 1
"""Also of memberships written before generations existed."""
_LATER_FIELDS = (FIRST_GENERATION, dict[str, str]())
"""Generation and retired storages of memberships that were written before these existed."""


@dataclass(frozen=True, slots=True)
class MemberIdentity:
    """This node's id in the group, and the random name of its storage."""

    member: str
    incarnation: str


class MemberRole(enum.Enum):
    VOTER = "voter"
    LEARNER = "learner"


@dataclass(frozen=True, slots=True)
class Member:
    """`addresses`: purpose -> 'host:port'; 'peer' is the group's own, others are stored for other packages.

    `becomes_voter`: the leader promotes this learner once it has caught up.
    """

    id: str
    role: MemberRole
    incarnation: str
    addresses: Mapping[str, str] = field(default_factory=dict)
    becomes_voter: bool = False

    def to_wire(self) -> list[Any]:
        return [self.id, self.role.value, self.incarnation, dict(sorted(self.addresses.items())), self.becomes_voter]

    @staticmethod
    def from_wire(wire: list[Any]) -> Member:
        """Raises ValueError or TypeError for a malformed member."""
        id_, role, incarnation, addresses, becomes_voter = wire
        texts = [id_, incarnation, *(text for pair in dict(addresses).items() for text in pair)]
        if not all(isinstance(text, str) for text in texts) or not isinstance(becomes_voter, bool):
            raise ValueError(f"a member has a field of the wrong type: {str(wire)[:200]}")
        return Member(id_, MemberRole(role), incarnation, dict(addresses), becomes_voter)


@dataclass(frozen=True, slots=True)
class Membership:
    """The members, in order of their ids, and the removed ids, which must not rejoin uninvited.

    `version` grows by one with every change, so two nodes can compare the age of theirs; 0 means none.
    `generation`: the history of the group that it belongs to (`generations.py`); 0 is unknown. No change alters it.
    `retired`: id -> incarnation of the last storage that was removed or replaced under this id. It must not be added
    again: a node that joins repeats its request, and one that arrives after its removal would make it a member whose
    process has ended.
    """

    members: tuple[Member, ...]
    removed: frozenset[str] = frozenset()
    version: int = 0
    generation: int = 0
    retired: Mapping[str, str] = field(default_factory=dict)
    _voters: frozenset[str] = field(init=False, repr=False, compare=False)
    """Cached: used in every turn of the group."""

    def __post_init__(self) -> None:
        voters = frozenset(member.id for member in self.members if member.role is MemberRole.VOTER)
        object.__setattr__(self, "_voters", voters)

    def get(self, member_id: str) -> Member | None:
        return next((member for member in self.members if member.id == member_id), None)

    @property
    def voters(self) -> frozenset[str]:
        return self._voters

    @property
    def learners(self) -> frozenset[str]:
        return frozenset(member.id for member in self.members if member.role is MemberRole.LEARNER)

    def has_storage(self, member_id: str, incarnation: str) -> bool:
        """Whether the member has this storage, or one that is not known yet. A node that joins again has memberships
        with its earlier storage until it has reached the entry with the new one."""
        known = self.get(member_id)
        return known is not None and known.incarnation in ("", incarnation)

    def is_voter(self, member_id: str) -> bool:
        return member_id in self._voters

    def with_member(self, member: Member) -> Membership:
        """Add a member, as a learner first. The same id with a new incarnation replaces the old one (M10); the same
        member with other addresses has moved."""
        if member.role is not MemberRole.LEARNER:
            raise MembershipRefused(f"{member.id} must join as a learner and be promoted once it has caught up")
        self._check_storage(member)
        known = self.get(member.id)
        if known is not None and known.incarnation == member.incarnation and known.addresses != member.addresses:
            return self._replaced(replace(known, addresses=member.addresses))
        if known is not None and known.incarnation == member.incarnation:
            raise MembershipRefused(f"{member.id} is a member already; remove it first, or wipe it and join again")
        if self.voters == {member.id}:
            raise MembershipRefused(f"{member.id} is the only voter: replacing it would lose everything")
        return self._replaced(member)

    def _check_storage(self, member: Member) -> None:
        """Raises MembershipRefused for a storage that was removed or replaced."""
        if member.incarnation and self.retired.get(member.id) == member.incarnation:
            raise MembershipRefused(
                f"{member.id} was removed from the cluster, or has joined with another data directory since: start it "
                "with --join and an empty data directory to let it join again"
            )

    def promoted(self, member_id: str) -> Membership:
        member = self.require(member_id)
        if member.role is MemberRole.VOTER:
            raise MembershipRefused(f"{member_id} is a voter already")
        return self._replaced(replace(member, role=MemberRole.VOTER, becomes_voter=False))

    def without(self, member_id: str) -> Membership:
        leaving = self.require(member_id)
        if self.voters == {member_id}:
            raise MembershipRefused(f"{member_id} is the only voter and can't be removed; stop the node instead")
        rest = tuple(member for member in self.members if member.id != member_id)
        retired = self._retired_with(leaving)
        return Membership(rest, self.removed | {member_id}, self.version + 1, self.generation, retired)

    def require(self, member_id: str) -> Member:
        """The member with this ID. Raises MembershipRefused, with the list of members, if there is none."""
        member = self.get(member_id)
        if member is None:
            names = ", ".join(member.id for member in self.members)
            raise MembershipRefused(f"{member_id} is not a member; the members are {names}")
        return member

    def _replaced(self, member: Member) -> Membership:
        rest = [other for other in self.members if other.id != member.id]
        members = tuple(sorted([*rest, member], key=lambda each: each.id))
        known = self.get(member.id)
        if known is None or known.incarnation == member.incarnation:
            retired = self.retired
        else:
            retired = self._retired_with(known)
        return Membership(members, self.removed - {member.id}, self.version + 1, self.generation, retired)

    def _retired_with(self, member: Member) -> Mapping[str, str]:
        """A member whose incarnation is not known yet has none to retire."""
        return {**self.retired, member.id: member.incarnation} if member.incarnation else self.retired

    def alone(self, member_id: str, generation: int) -> Membership:
        """`member_id` as the only voter of a new generation: for a forced new cluster, outside the rules of Raft. The
        storages of the others may be added again: what they hold of the old generation, they refuse themselves."""
        only = replace(self.require(member_id), role=MemberRole.VOTER, becomes_voter=False)
        gone = {member.id for member in self.members} - {member_id}
        return Membership((only,), self.removed | gone, self.version + 1, generation, self.retired)

    def to_wire(self) -> list[Any]:
        members, retired = [member.to_wire() for member in self.members], dict(sorted(self.retired.items()))
        return [members, sorted(self.removed), self.version, self.generation, retired]

    @staticmethod
    def from_wire(wire: list[Any]) -> Membership:
        """Raises ValueError or TypeError for a malformed membership."""
        wired, removed, version, *rest = wire
        later: list[Any] = [*rest, *_LATER_FIELDS[len(rest) :]]
        generation, retired = later
        members = tuple(Member.from_wire(each) for each in wired)
        fits = isinstance(version, int) and isinstance(generation, int) and isinstance(retired, Mapping)
        if not fits or not all(isinstance(each, str) for each in (*removed, *retired, *retired.values())):
            raise ValueError(f"version, generation, removed or retired have the wrong type: {str(wire[1:])[:200]}")
        if len({member.id for member in members}) != len(members):
            raise ValueError("two members have the same id")
        return Membership(members, frozenset(removed), version, generation, dict(retired))


class MembershipLog:
    """The memberships in the log, by index: the effective one, and earlier ones for the case of a truncation."""

    def __init__(self, base: Membership) -> None:
        self._changes: list[tuple[int, Membership]] = [(0, base)]

    @property
    def current(self) -> Membership:
        return self._changes[-1][1]

    @property
    def changed_at(self) -> int:
        """The index of the entry with the current membership; 0 for that of the base."""
        return self._changes[-1][0]

    def at(self, index: int) -> Membership:
        return next(membership for start, membership in reversed(self._changes) if start <= index)

    def has_had(self, identity: MemberIdentity) -> bool:
        """Whether one of them has this member with this storage."""
        known = (membership.get(identity.member) for _, membership in self._changes)
        return any(member is not None and member.incarnation == identity.incarnation for member in known)

    def append(self, index: int, membership: Membership) -> None:
        self._changes.append((index, membership))

    def truncate_from(self, index: int) -> bool:
        """Drop the changes at or above `index`; True if the current membership has changed."""
        before = len(self._changes)
        self._changes = [change for change in self._changes if change[0] < index or change[0] == 0]
        return len(self._changes) != before

    def compact_to(self, index: int) -> None:
        base = self.at(index)
        self._changes = [(0, base), *(change for change in self._changes if change[0] > index)]

    def found(self, base: Membership) -> None:
        """The membership below the first change has become known."""
        self._changes[0] = (0, base)

    def reset(self, base: Membership) -> None:
        self._changes = [(0, base)]
