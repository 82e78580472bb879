"""How a new group learns its members' storages, and distinguishes a wiped storage from a new one.

Each storage gets a random name, its incarnation, on creation. A founding member durably pins the first incarnation that
it sees of every other founding member, and sends its pins to all of them. It takes part in elections once all founding
members report the same complete map; that map is the first membership, and from then on messages of another storage
under one of these ids are ignored. Thus a founding member that lost its disk cannot vote twice: before the map is
agreed there are no votes, and afterwards each other member has pinned the lost storage. Price: the first start needs
all founding members; later ones need a majority.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from palisade.raftgroup.errors import DataDirectoryError, StorageLost
from palisade.raftgroup.generations import OTHER_GENERATION, UNKNOWN, judge_generation, refusing_generation
from palisade.raftgroup.membership import FIRST_GENERATION, Member, MemberRole, Membership

OTHER_STORAGE = "other-storage: "
"""The prefix of a refusal if the group knows the refused member with another storage; the refused node evaluates it."""
REMOVED = " was removed from the cluster"
"""In a refusal, after the id of the refused member, which evaluates it."""
_TEXTS = ("cluster", "member", "incarnation", "address", "terms", "origin")


@dataclass(frozen=True, slots=True)
class Greeting:
    """The content of a node's handshake.

    `address`: where it listens for members, 'host:port'. `terms`: settings that all members must agree on. `knows`: the
    incarnations of its effective membership, and `version` the version of that. `generation`: of its history, 0 for
    none. `origin`: the backup from which it was restored, until the restored group is founded.
    """

    cluster: str
    member: str
    incarnation: str
    address: str
    terms: str
    knows: Mapping[str, str]
    version: int = 0
    generation: int = 0
    origin: str = ""

    def to_wire(self) -> dict[str, Any]:
        return {
            "cluster": self.cluster,
            "member": self.member,
            "incarnation": self.incarnation,
            "address": self.address,
            "terms": self.terms,
            "knows": dict(self.knows),
            "version": self.version,
            "generation": self.generation,
            "origin": self.origin,
        }

    @staticmethod
    def from_wire(wire: Mapping[str, Any]) -> Greeting:
        """Raises ValueError, with the field, for a malformed greeting."""
        texts = [wire.get(name) for name in _TEXTS]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError(f"the greeting lacks some of its text fields: {', '.join(_TEXTS)}")
        knows = wire.get("knows")
        if not isinstance(knows, dict) or not all(isinstance(each, str) for pair in knows.items() for each in pair):
            raise ValueError("the greeting's field 'knows' is not a map of texts")
        version, generation = wire.get("version"), wire.get("generation")
        for name, number in (("version", version), ("generation", generation)):
            if not isinstance(number, int):
                raise ValueError(f"the greeting's field {name!r} is not a number: run the same release on both nodes")
        cluster, member, incarnation, address, terms, origin = map(str, texts)
        return Greeting(
            cluster, member, incarnation, address, terms, knows, int(str(version)), int(str(generation)), origin
        )


class Founding:
    """Agrees on the incarnations of the founding members. `addresses`: founding member -> its addresses.

    `pinned`: the pins of an earlier run of this node.
    """

    def __init__(
        self, own: Greeting, addresses: Mapping[str, Mapping[str, str]], pinned: Mapping[str, str] | None = None
    ) -> None:
        self._own = own
        self._addresses = addresses
        self._pins = {**(pinned or {}), own.member: own.incarnation}
        self._reported: dict[str, Mapping[str, str]] = {}

    @property
    def pins(self) -> Mapping[str, str]:
        """Make them durable before sending them."""
        return self._pins

    def provisional(self) -> Membership:
        """The members to connect with meanwhile; without known incarnations there are no votes."""
        return self._membership(dict.fromkeys(self._addresses, ""), version=0)

    def saw(self, greeting: Greeting) -> None:
        """Pin the storage of a greeting. Raises DataDirectoryError if another one was pinned before."""
        if self._own.member in greeting.knows and set(self._addresses) <= set(greeting.knows):
            self._adopt({member: greeting.knows[member] for member in self._addresses})
        if greeting.member not in self._addresses:
            return
        pinned = self._pins.setdefault(greeting.member, greeting.incarnation)
        if pinned != greeting.incarnation:
            raise DataDirectoryError(
                f"{greeting.member} was first seen with storage {pinned} and now has {greeting.incarnation}, but "
                "the cluster is not founded yet: empty the data directories of all its members and start them again"
            )

    def reported(self, member: str, pins: Mapping[str, str]) -> None:
        """`member` has durably pinned these storages."""
        self._reported[member] = pins

    def _adopt(self, agreed: Mapping[str, str]) -> None:
        """The others have already agreed, on a map that includes this storage."""
        self._pins = dict(agreed)
        self._reported = dict.fromkeys(self._addresses, self._pins)

    def agreed(self) -> Membership | None:
        """The first membership, once every founding member has reported the same complete map."""
        complete = set(self._pins) == set(self._addresses)
        others = set(self._addresses) - {self._own.member}
        if complete and all(self._reported.get(member) == self._pins for member in others):
            return self._membership(self._pins, version=1)
        return None

    def missing(self) -> list[str]:
        """Founding members that were not seen yet."""
        return sorted(set(self._addresses) - set(self._pins))

    def _membership(self, incarnations: Mapping[str, str], version: int) -> Membership:
        return Membership(
            tuple(
                Member(member, MemberRole.VOTER, incarnations[member], self._addresses[member])
                for member in sorted(self._addresses)
            ),
            version=version,
            generation=self._own.generation or FIRST_GENERATION,
        )


class Introductions:
    """This node's greeting, and whether it accepts others. `founding` is None once it is over."""

    def __init__(self, own: Greeting, founding: Founding | None) -> None:
        self._own = own
        self._founding = founding
        self._agreed: Mapping[str, str] | None = None

    def missing_founders(self) -> list[str]:
        """The group cannot start before they were seen."""
        return self._founding.missing() if self._founding else []

    def generation(self, membership: Membership) -> int:
        """The generation of this node. `membership`: its newest one, committed or not, because nothing undoes a
        generation; on a joining node it may be an old one."""
        return max(membership.generation, self._own.generation)

    def joins(self, generation: int) -> None:
        """`generation`: that of the leader whose log this node takes."""
        self._own = replace(self._own, generation=generation)

    def greeting(self, membership: Membership, generation: int = UNKNOWN) -> Greeting:
        known = Membership(()) if self._founding else membership
        knows = {member.id: member.incarnation for member in known.members}
        return replace(self._own, knows=knows, version=known.version, generation=generation or self._own.generation)

    def judge(self, greeting: Greeting, membership: Membership, generation: int = UNKNOWN) -> str | None:
        """The reason of a refusal, or None. Raises StorageLost if the other node knows this member with another
        storage, so this one was wiped or replaced. Two exceptions: a node with an older membership may not know the
        present storage yet; and a node that has joined again may still have an old membership from its log, with its
        earlier storage.

        `membership`: the newest committed one; `generation`: that of this node.

        A founding member that was unreachable when the others agreed may first learn of it from the log.
        """
        if membership.version > 0:
            self._founding = None
        own = replace(self._own, generation=generation or self._own.generation)
        reason = judge_greeting(greeting, own, membership) or self._judge_origin(greeting)
        known_as = greeting.knows.get(self._own.member, self._own.incarnation)
        belongs = membership.has_storage(self._own.member, self._own.incarnation)
        newer = greeting.version > membership.version
        if reason is None and belongs and newer and known_as != self._own.incarnation:
            raise wiped(self._own.member, self._own.incarnation, known_as)
        return reason

    def _judge_origin(self, greeting: Greeting) -> str | None:
        """Members that found a group together must start with the same state."""
        if self._founding is None or greeting.version > 0 or greeting.origin == self._own.origin:
            return None
        return (
            f"{greeting.member} starts with {greeting.origin or 'an empty store'}, and {self._own.member} with "
            f"{self._own.origin or 'an empty store'}: restore the same backup on all founding members"
        )

    def founds(self, membership: Membership) -> bool:
        """Whether this node was started to found a group, and has no membership yet: its storage is new."""
        return self._founding is not None and membership.version == 0

    def refused(self, member: str, reason: str, membership: Membership) -> None:
        """Raises StorageLost if a founding member without a membership is refused because of another storage:
        the group was founded with that storage, and this one will never be admitted.

        A node with a membership, even if only in its log, may be refused by an outdated member that knows its earlier
        storage; so may a joining node. `membership`: the newest one of this node, committed or not.
        """
        if self.founds(membership) and membership.get(member) is not None and reason.startswith(OTHER_STORAGE):
            raise StorageLost(
                f"{member} refuses {self._own.member} ({reason.removeprefix(OTHER_STORAGE)}): the data directory was "
                "lost or swapped. Restore the old one, or start with --join and an empty data directory to join as a "
                "new member"
            )

    @property
    def pins(self) -> Mapping[str, str] | None:
        """The pins that a founding member sends, also after the founding, because another one may have missed them."""
        return self._founding.pins if self._founding else self._agreed

    def saw(self, greeting: Greeting) -> None:
        if self._founding is not None:
            self._founding.saw(greeting)

    def reported(self, member: str, pins: Mapping[str, str]) -> None:
        if self._founding is not None:
            self._founding.reported(member, pins)

    def found(self) -> Membership | None:
        """The first membership, returned once, when all founding members agree on it."""
        membership = self._founding.agreed() if self._founding else None
        if membership is not None:
            self._agreed, self._founding = self.pins, None
        return membership


def judge_greeting(greeting: Greeting, own: Greeting, membership: Membership) -> str | None:
    """Why a connection is refused, or None. `membership`: the effective one of this node.

    A node with a newer membership is not refused because of it: a node that joined again under its old id may lead by
    now, and this node learns of it only over this connection. That is safe, because every vote and every
    acknowledgement carries its incarnation, and is counted by that.
    """
    if greeting.cluster != own.cluster:
        return f"this is cluster {own.cluster}, not {greeting.cluster}: check the addresses of both"
    other_generation = judge_generation(greeting.member, greeting.generation, own.generation, own.incarnation)
    if other_generation is not None:
        return other_generation
    if greeting.terms != own.terms:
        return f"{greeting.member} has other limits ({greeting.terms}) than this node ({own.terms}): make them equal"
    if greeting.member == own.member:
        return f"two nodes have the name {own.member}: give one of them another id"
    if greeting.version > membership.version:
        return None
    if greeting.member in membership.removed:
        return f"{greeting.member}{REMOVED}: let it join again with an empty data directory"
    known = membership.get(greeting.member)
    if known is not None and known.incarnation not in ("", greeting.incarnation):
        return (
            f"{OTHER_STORAGE}{greeting.member} is known with storage {known.incarnation}, not {greeting.incarnation}: "
            "if its disk was lost, start it with --join and an empty data directory"
        )
    return None


def is_removal(reason: str, member: str) -> bool:
    """Whether a refusal names the member as removed."""
    return reason.startswith(f"{member}{REMOVED}")


def refusal_text(reason: str) -> str:
    """A refusal as text, without its machine-readable prefix."""
    if refusing_generation(reason) is not None:
        return reason.removeprefix(OTHER_GENERATION).partition(": ")[2]
    return reason.removeprefix(OTHER_STORAGE)


def wiped(member: str, incarnation: str, known: str) -> StorageLost:
    return StorageLost(
        f"the cluster knows {member} with storage {known}, but this one is {incarnation}: the data directory was lost "
        "or swapped. Restore the old one, or start with --join and an empty data directory to join as a new member"
    )
