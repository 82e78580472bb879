"""The members of the group: Raft thesis 4.1, and M10, M11 of the requirements."""

from __future__ import annotations

from itertools import combinations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palisade.raftgroup.errors import MembershipRefused
from palisade.raftgroup.membership import Member, MemberRole, Membership, MembershipLog
from palisade.raftgroup.quorum_lease import majority
from tests.support.lone_replica import storage, voters


def learner(member: str, incarnation: str | None = None) -> Member:
    return Member(member, MemberRole.LEARNER, incarnation or storage(member), {"peer": member})


def majorities(membership: Membership) -> list[frozenset[str]]:
    needed = majority(len(membership.voters))
    return [frozenset(each) for each in combinations(sorted(membership.voters), needed)]


def changed(membership: Membership, change: str, member: str) -> Membership:
    if change == "add":
        return membership.with_member(learner(member, f"{member}-{membership.version}"))
    return membership.promoted(member) if change == "promote" else membership.without(member)


CHANGES = st.tuples(st.sampled_from(["add", "promote", "remove"]), st.sampled_from(["n1", "n2", "n3", "n4", "n5"]))


@given(st.lists(CHANGES, max_size=20))
def test_majorities_of_consecutive_memberships_share_a_voter(
    changes: list[tuple[str, str]],
) -> None:
    membership = voters("n1", "n2", "n3")
    for change, member in changes:
        try:
            after = changed(membership, change, member)
        except MembershipRefused:
            continue
        assert after.voters
        assert after.version == membership.version + 1
        assert len(after.voters ^ membership.voters) <= 1
        for one in majorities(membership):
            assert all(one & other for other in majorities(after))
        assert Membership.from_wire(after.to_wire()) == after
        membership = after


@given(st.lists(CHANGES, max_size=20))
def test_replaced_storage_never_counts_as_the_voter_that_it_replaces(changes: list[tuple[str, str]]) -> None:
    """An incarnation becomes a voter's only by a promotion."""
    membership = voters("n1", "n2", "n3")
    for change, member in changes:
        try:
            after = changed(membership, change, member)
        except MembershipRefused:
            continue
        for voter in after.voters & membership.voters:
            assert after.get(voter) == membership.get(voter)
        membership = after


def test_new_member_is_a_learner_first() -> None:
    with pytest.raises(MembershipRefused, match="must join as a learner"):
        voters("n1").with_member(Member("n2", MemberRole.VOTER, "x"))


def test_member_with_the_same_storage_is_not_added_twice() -> None:
    with pytest.raises(MembershipRefused, match="is a member already"):
        voters("n1", "n2").with_member(learner("n2"))


def test_only_voter_is_neither_removed_nor_replaced() -> None:
    alone = voters("n1").with_member(learner("n2"))
    with pytest.raises(MembershipRefused, match="only voter"):
        alone.without("n1")
    with pytest.raises(MembershipRefused, match="only voter"):
        alone.with_member(learner("n1", "new"))


def test_unknown_member_is_neither_promoted_nor_removed() -> None:
    for change in (voters("n1").promoted, voters("n1").without):
        with pytest.raises(MembershipRefused, match="n9 is not a member; the members are n1"):
            change("n9")


def test_voter_is_not_promoted_again() -> None:
    with pytest.raises(MembershipRefused, match="voter already"):
        voters("n1").promoted("n1")


def test_removed_member_is_remembered_until_it_is_added_again() -> None:
    without = voters("n1", "n2", "n3").without("n3")
    assert without.removed == {"n3"}
    assert without.with_member(learner("n3", "new")).removed == frozenset()


def test_storage_that_was_removed_is_not_added_again() -> None:
    """A node repeats its join request until its log contains it. One that arrived after the removal made it a voter
    whose process had ended."""
    without = voters("n1", "n2").with_member(learner("n3", "first")).without("n3")
    stored = Membership.from_wire(msgpack.unpackb(msgpack.packb(without.to_wire())))
    with pytest.raises(MembershipRefused, match="start it with --join and an empty data directory"):
        stored.with_member(learner("n3", "first"))
    again = stored.with_member(learner("n3", "second"))
    assert again.require("n3").incarnation == "second"
    with pytest.raises(MembershipRefused, match="n3 was removed from the cluster, or has joined with another"):
        again.with_member(learner("n3", "first"))


def test_storage_that_was_replaced_is_not_added_again() -> None:
    replaced = voters("n1", "n2", "n3").with_member(learner("n3", "second"))
    with pytest.raises(MembershipRefused, match="has joined with another data directory since"):
        replaced.with_member(learner("n3", storage("n3")))
    with pytest.raises(MembershipRefused, match="n3 is a member already"):
        replaced.with_member(learner("n3", "second"))


def test_promotion_and_new_addresses_retire_no_storage() -> None:
    moved = Member("n4", MemberRole.LEARNER, storage("n4"), {"peer": "elsewhere"})
    joined = voters("n1", "n2", "n3").with_member(learner("n4")).with_member(moved).promoted("n4")
    assert (joined.require("n4").addresses, joined.retired) == ({"peer": "elsewhere"}, {})


def test_survivor_may_add_the_storages_of_all_others_again() -> None:
    """Except one that had been removed before."""
    alone = voters("n1", "n2", "n3").without("n3").alone("n2", 2)
    assert alone.with_member(learner("n1")).require("n1").incarnation == storage("n1")
    with pytest.raises(MembershipRefused, match="n3 was removed"):
        alone.with_member(learner("n3"))


def test_storage_that_is_not_known_is_not_retired() -> None:
    """A founding member whose node has not reported yet."""
    founded = Membership((*voters("n1", "n2").members, Member("n3", MemberRole.VOTER, "")))
    assert founded.without("n3").retired == {}


@pytest.mark.parametrize("fields", [3, 4])
def test_membership_of_an_earlier_format_is_read(fields: int) -> None:
    written = voters("n1", "n2", "n3").without("n3").to_wire()[:fields]
    read = Membership.from_wire(written)
    assert (read.removed, read.generation, read.retired) == ({"n3"}, 1, {})


@pytest.mark.parametrize("retired", [5, None, ["n3"], [["n3", "a"]], {"n3": 1}, {3: "a"}])
def test_malformed_retired_storages_are_refused(retired: object) -> None:
    wire = [*voters("n1").to_wire()[:4], retired]
    with pytest.raises((ValueError, TypeError)):
        Membership.from_wire(wire)


def test_membership_of_a_later_format_is_refused() -> None:
    with pytest.raises(ValueError, match="too many values"):
        Membership.from_wire([*voters("n1").to_wire(), "unknown"])


class TestMembershipLog:
    BASE = voters("n1", "n2", "n3")
    FIRST = BASE.with_member(learner("n4"))
    SECOND = FIRST.promoted("n4")

    def log(self) -> MembershipLog:
        log = MembershipLog(self.BASE)
        log.append(5, self.FIRST)
        log.append(9, self.SECOND)
        return log

    def test_newest_membership_in_the_log_is_effective_from_its_index(self) -> None:
        log = self.log()
        assert log.current == self.SECOND
        assert [log.at(index) for index in (0, 4, 5, 8, 9, 99)] == [
            self.BASE,
            self.BASE,
            self.FIRST,
            self.FIRST,
            self.SECOND,
            self.SECOND,
        ]

    def test_truncation_restores_the_previous_membership(self) -> None:
        log = self.log()
        assert log.truncate_from(9)
        assert (log.current, log.changed_at) == (self.FIRST, 5)
        assert not log.truncate_from(6)
        assert log.truncate_from(1)
        assert log.current == self.BASE

    def test_compaction_keeps_the_membership_at_the_base(self) -> None:
        log = self.log()
        log.compact_to(7)
        assert (log.at(7), log.current, log.changed_at) == (self.FIRST, self.SECOND, 9)
        log.truncate_from(8)
        assert log.current == self.FIRST

    def test_snapshot_replaces_all_memberships(self) -> None:
        log = self.log()
        log.reset(self.FIRST)
        assert (log.current, log.changed_at) == (self.FIRST, 0)


def test_moved_member_keeps_its_role_and_storage() -> None:
    """It is requested like an addition, with the known storage (palisade/topology/address_announcement.py)."""
    membership = voters("n1", "n2", "n3")
    moved = Member("n2", MemberRole.LEARNER, storage("n2"), {"peer": "elsewhere"})
    after = membership.with_member(moved)
    assert after.get("n2") == Member("n2", MemberRole.VOTER, storage("n2"), {"peer": "elsewhere"})
    assert (after.voters, after.version) == (membership.voters, membership.version + 1)
    with pytest.raises(MembershipRefused, match="is a member already"):
        after.with_member(moved)


def test_only_voter_may_move() -> None:
    alone = voters("n1")
    assert alone.with_member(Member("n1", MemberRole.LEARNER, storage("n1"), {"peer": "h:1"})).voters == {"n1"}
