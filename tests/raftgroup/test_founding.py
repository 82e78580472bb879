"""Founding a group, and distinguishing a wiped member from a new one: M11 of the requirements, RATIS-2523."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from random import Random

import pytest

from palisade.raftgroup.errors import DataDirectoryError, StorageLost
from palisade.raftgroup.founding import OTHER_STORAGE, Founding, Greeting, Introductions, judge_greeting
from palisade.raftgroup.membership import Membership
from tests.support.lone_replica import storage, voters

ADDRESSES = {member: {"peer": member} for member in ("n1", "n2", "n3")}


def greeting(
    member: str, incarnation: str | None = None, knows: Membership | None = None, cluster: str = "c"
) -> Greeting:
    known = knows or Membership(())
    return Greeting(
        cluster=cluster,
        member=member,
        incarnation=incarnation or storage(member),
        address=f"{member}:7501",
        terms="",
        knows={each.id: each.incarnation for each in known.members},
        version=known.version,
    )


class Founder:
    """One founding member, and the use of its vote. Its pins survive a restart, its reports do not."""

    def __init__(self, member: str, incarnation: str | None = None, pins: dict[str, str] | None = None) -> None:
        self.member = member
        self.incarnation = incarnation or storage(member)
        self.introductions = Introductions(
            greeting(member, self.incarnation), Founding(greeting(member, self.incarnation), ADDRESSES, pins)
        )
        self.membership: Membership | None = None

    def greeting(self) -> Greeting:
        known = self.membership or Founding(greeting(self.member), ADDRESSES).provisional()
        return self.introductions.greeting(known)

    def meets(self, other: Greeting) -> bool:
        """Whether it accepts the other one."""
        known = self.membership or Founding(greeting(self.member), ADDRESSES).provisional()
        if self.introductions.judge(other, known) is not None:
            return False
        self.introductions.saw(other)
        self.looks()
        return True

    def receives(self, member: str, pins: dict[str, str]) -> None:
        self.introductions.reported(member, pins)
        self.looks()

    def looks(self) -> None:
        self.membership = self.introductions.found() or self.membership


PAIRS = [("n1", "n2"), ("n1", "n3"), ("n2", "n3")]


@pytest.mark.parametrize("order", list(permutations(PAIRS)))
def test_founding_reaches_the_same_membership_in_any_order_of_greetings(order: list[tuple[str, str]]) -> None:
    founders = {member: Founder(member) for member in ADDRESSES}
    for one, other in order:
        greetings = founders[one].greeting(), founders[other].greeting()
        assert founders[one].meets(greetings[1])
        assert founders[other].meets(greetings[0])
    assert all(founder.membership is None for founder in founders.values()), "no member votes before all agree"
    for one, other in order:
        founders[one].receives(other, dict(founders[other].introductions.pins or {}))
        founders[other].receives(one, dict(founders[one].introductions.pins or {}))
    assert [founder.membership for founder in founders.values()] == [voters("n1", "n2", "n3")] * 3


def test_missing_founder_delays_the_founding_and_is_named() -> None:
    founder = Founder("n1")
    founder.meets(greeting("n2"))
    founder.receives("n2", {"n1": storage("n1"), "n2": storage("n2")})
    assert founder.membership is None
    assert founder.introductions.missing_founders() == ["n3"]


def test_founded_member_informs_a_late_founder() -> None:
    latecomer = Founder("n3")
    latecomer.meets(greeting("n1", knows=voters("n1", "n2", "n3")))
    assert latecomer.membership == voters("n1", "n2", "n3")


def test_pins_are_reported_after_the_founding() -> None:
    """The greeting of a connection may be older than its sender's founding."""
    founder = Founder("n1")
    pins = {member: storage(member) for member in ADDRESSES}
    for member in ("n2", "n3"):
        founder.meets(greeting(member))
        founder.receives(member, pins)
    assert founder.membership is not None
    assert founder.introductions.pins == pins


def test_founder_that_lost_its_disk_is_refused_and_stops() -> None:
    wiped, survivor = Founder("n2", "new storage"), voters("n1", "n2", "n3")
    with pytest.raises(StorageLost, match="the cluster knows n2 with storage n2-storage"):
        wiped.meets(greeting("n1", knows=survivor))
    reason = judge_greeting(greeting("n2", "new storage"), greeting("n1"), survivor)
    assert reason is not None
    assert "start it with --join" in reason
    with pytest.raises(StorageLost, match=r"n1 refuses n2 .*start with --join"):
        Founder("n2", "new storage").introductions.refused("n1", reason, provisional())


def provisional() -> Membership:
    return Founding(greeting("n1"), ADDRESSES).provisional()


REFUSAL = f"{OTHER_STORAGE}n2 is known with storage old, not new"


@pytest.mark.parametrize(
    ("founding", "by", "reason", "membership"),
    [
        (True, "n1", "two nodes have the name n2", provisional()),
        (True, "n9", REFUSAL, provisional()),
        (True, "n1", REFUSAL, voters("n1", "n2", "n3")),
        (False, "n1", REFUSAL, Membership(())),
        (False, "n1", REFUSAL, voters("n1", "n2", "n3")),
    ],
    ids=["for another reason", "by a stranger", "with a membership in its log", "while it joins", "as a member"],
)
def test_other_refusals_stop_no_member(founding: bool, by: str, reason: str, membership: Membership) -> None:
    """An outdated member may know the earlier storage of a member that joined again."""
    own = greeting("n2", "new")
    Introductions(own, Founding(own, ADDRESSES) if founding else None).refused(by, reason, membership)


def random_walk(random: Random) -> None:
    """Greetings and reports in any order, with losses and restarts; n2's disk is lost at some moment."""
    founders = {member: Founder(member) for member in ADDRESSES}
    lost_at, stopped = int(random.random() * 40), set[str]()
    agreed: set[tuple[tuple[str, str], ...]] = set()
    for step in range(60):
        if step == lost_at:
            founders["n2"] = Founder("n2", "new storage")
        one, other = random.sample(sorted(ADDRESSES), 2)
        if one in stopped or other in stopped:
            continue
        try:
            deed = random.random()
            if deed < 0.5:
                founders[one].meets(founders[other].greeting())
            elif deed < 0.9:
                founders[one].receives(other, dict(founders[other].introductions.pins or {}))
            elif founders[one].membership is None:
                pins = dict(founders[one].introductions.pins or {})
                founders[one] = Founder(one, founders[one].incarnation, pins)
        except DataDirectoryError:
            stopped.add(one)
        agreed |= {
            tuple((each.id, each.incarnation) for each in founder.membership.members)
            for founder in founders.values()
            if founder.membership is not None
        }
    assert len(agreed) <= 1, "two groups were founded"


def test_founding_creates_at_most_one_group() -> None:
    for seed in range(3000):
        random_walk(Random(seed))


class TestGreetings:
    OWN = greeting("n1")
    KNOWN = voters("n1", "n2", "n3")

    def judged(self, other: Greeting) -> str | None:
        return judge_greeting(other, self.OWN, self.KNOWN)

    def test_greeting_of_a_member_with_its_storage_is_accepted(self) -> None:
        assert self.judged(greeting("n2", knows=self.KNOWN)) is None

    def test_greeting_of_an_unknown_member_is_accepted(self) -> None:
        assert self.judged(greeting("n9")) is None

    def test_greeting_of_another_cluster_is_refused(self) -> None:
        assert "this is cluster c, not other" in str(self.judged(greeting("n2", cluster="other")))

    def test_greeting_with_the_own_id_is_refused(self) -> None:
        assert "two nodes have the name n1" in str(self.judged(greeting("n1", "x")))

    def test_greeting_of_a_removed_member_is_refused(self) -> None:
        reason = judge_greeting(greeting("n3", knows=self.KNOWN), self.OWN, self.KNOWN.without("n3"))
        assert "n3 was removed" in str(reason)

    def test_greeting_with_a_newer_membership_is_accepted_under_any_storage(self) -> None:
        """It may have joined again and lead by now; this node learns of it only over this connection."""
        newer = Membership(self.KNOWN.members, version=9)
        assert self.judged(greeting("n2", "new storage", knows=newer)) is None

    def test_outdated_member_cannot_stop_a_member_with_a_new_storage(self) -> None:
        """An outdated member that knows only the old storage, seen by the new storage, which is a member."""
        came_back = Introductions(greeting("n2", "new storage"), None)
        newer = Membership((), version=9)
        assert came_back.judge(greeting("n3", knows=self.KNOWN), newer) is None

    def test_joining_member_is_not_stopped_by_one_further_in_an_old_log(self) -> None:
        """Restores 168: two members joined with new disks; one, which copied the old log faster, reported to the other
        one its earlier storage.
        """
        joins = Introductions(greeting("n2", "new storage"), None)
        newer = Membership(self.KNOWN.members, version=self.KNOWN.version + 1)
        assert joins.judge(greeting("n3", knows=newer), self.KNOWN) is None
        arrived = replace(self.KNOWN, members=tuple(replace(each, incarnation="new storage") for each in newer.members))
        with pytest.raises(StorageLost, match="the cluster knows n2 with storage n2-storage, but this one is"):
            joins.judge(greeting("n3", knows=newer), arrived)

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("cluster", None),
            ("member", 3),
            ("incarnation", b"x"),
            ("knows", []),
            ("knows", {"n1": 1}),
            ("version", "1"),
        ],
    )
    def test_malformed_greeting_is_refused_with_its_field(self, field: str, value: object) -> None:
        with pytest.raises(ValueError, match=field):
            Greeting.from_wire(greeting("n1").to_wire() | {field: value})

    def test_greeting_round_trips(self) -> None:
        said = greeting("n2", knows=self.KNOWN)
        assert Greeting.from_wire(said.to_wire()) == said
