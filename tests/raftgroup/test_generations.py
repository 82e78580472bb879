"""Members of different generations never work together, and a node left behind stops: R7, issue 3."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from palisade.raftgroup.admission import MemberAdmission, own_introduction
from palisade.raftgroup.errors import DataDirectoryError
from palisade.raftgroup.founding import Founding, Introductions
from palisade.raftgroup.generations import UNKNOWN, judge_generation, outlived, refusing_generation
from palisade.raftgroup.group_config import GroupConfig
from palisade.raftgroup.journal_identity import keep_restored, open_storage
from palisade.raftgroup.membership import Membership
from palisade.raftgroup.memory_journal import MemoryJournal
from palisade.raftgroup.messages import MessageKind
from palisade.raftgroup.ports import Entry
from tests.raftgroup.test_founding import ADDRESSES, greeting
from tests.support.lone_replica import LoneReplica, storage, voters
from tests.support.raft_network import Network, SimPeers
from tests.support.simulation import Simulation

KNOWN = voters("n1", "n2", "n3")


def refusal(by: str, generation: int, incarnation: str | None = None) -> dict[str, str]:
    """The refusal by `by`, of that generation, of n3 of generation 1."""
    reason = judge_generation("n3", 1, generation, incarnation or storage(by))
    assert reason is not None
    return {by: reason}


@pytest.mark.parametrize(("its", "own"), [(1, 1), (7, 7), (0, 3), (3, 0), (0, 0)])
def test_same_and_missing_generations_are_accepted(its: int, own: int) -> None:
    assert judge_generation("n2", its, own, "x") is None


@pytest.mark.parametrize(("its", "own"), [(1, 2), (2, 1), (1, 9)])
def test_other_generation_is_refused_with_the_remedy(its: int, own: int) -> None:
    reason = str(judge_generation("n2", its, own, "storage-of-n1"))
    assert f"n2 is of generation {its}" in reason
    assert "--join" in reason
    assert refusing_generation(reason) == (own, "storage-of-n1")


@pytest.mark.parametrize(
    "reason", ["", "other-generation: ", "other-generation: x y: z", "other-generation: 2 y", "no"]
)
def test_other_refusals_name_no_generation(reason: str) -> None:
    assert refusing_generation(reason) is None


def test_greeting_of_another_generation_is_refused_first() -> None:
    own = Introductions(replace(greeting("n1"), generation=2), None)
    reason = own.judge(replace(greeting("n2", knows=KNOWN), generation=1), KNOWN, 2)
    assert refusing_generation(str(reason)) == (2, storage("n1"))
    ahead = replace(greeting("n2", knows=Membership(KNOWN.members, version=9)), generation=1)
    assert refusing_generation(str(own.judge(ahead, KNOWN, 2))) == (2, storage("n1"))


def test_member_whose_storage_has_a_newer_generation_stops_this_node() -> None:
    """The survivor of a forced new cluster; two members that return would be a majority of the old one."""
    reason = outlived("n3", 1, KNOWN, refusal("n1", 2))
    assert reason is not None
    assert "n3 holds generation 1" in reason
    assert "--join" in reason


def test_single_restored_copy_at_a_members_address_stops_no_node() -> None:
    assert outlived("n3", 1, KNOWN, refusal("n1", 2, "a restored storage")) is None


def test_restored_majority_stops_the_others() -> None:
    both = refusal("n1", 2, "restored 1") | refusal("n2", 2, "restored 2")
    assert "n3 holds generation 1" in str(outlived("n3", 1, KNOWN, both))


@pytest.mark.parametrize(
    ("members", "newer", "stops"),
    [(2, 1, True), (3, 1, False), (3, 2, True), (4, 1, False), (4, 2, True), (5, 2, False), (5, 3, True)],
)
def test_member_stops_once_the_remaining_voters_are_no_majority(members: int, newer: int, stops: bool) -> None:
    """Half of an even number is no majority either (issue 16)."""
    names = [f"n{number}" for number in range(1, members + 1)]
    refusals = {name: refusal(name, 2, f"restored {name}")[name] for name in names[:newer]}
    assert (outlived(names[-1], 1, voters(*names), refusals) is not None) is stops


def test_joining_member_uses_the_generation_that_it_joins() -> None:
    """Restores 11038 and 11024: its log had reached memberships from before the break."""
    assert outlived("n3", 2, KNOWN, refusal("n1", 2)) is None
    assert "n3 holds generation 2" in str(outlived("n3", 2, KNOWN, refusal("n1", 3)))
    joining = Introductions(greeting("n3"), None)
    assert joining.generation(Membership(())) == UNKNOWN
    joining.joins(2)
    assert joining.generation(KNOWN) == 2
    assert joining.generation(replace(KNOWN, generation=3)) == 3


def test_joining_member_copies_one_history_even_if_another_knows_it() -> None:
    """The administrator made a mistake, and both continue. They have used the same terms: if entries of one follow
    those of the other, it goes unnoticed.
    """
    journal = MemoryJournal()
    stored = open_storage(journal, "c", "n1", Random(1))
    own, _ = own_introduction(GroupConfig("c", "n1", {"peer": "n1:7501"}, {}), stored)
    failures, connected_with = list[Exception](), list[set[str]]()
    peers = SimPeers(Network(Simulation(1)), "n1", Simulation(1).process("n1"))
    peers.set_members = lambda addresses: connected_with.append(set(addresses))  # type: ignore[method-assign]
    node = MemberAdmission(
        Introductions(own, None),
        LoneReplica(membership=Membership((), version=0)).replica,
        journal=journal,
        peers=peers,
        wake=lambda: None,
        fail=failures.append,
    )
    of_before, of_after = (replace(greeting(by, knows=KNOWN), generation=of) for by, of in (("n2", 1), ("n3", 2)))
    for each in (of_before, of_after):
        assert node.judge(each.to_wire()) is None
    node.dial(1.0)
    assert connected_with.pop() == {"n2", "n3"}
    assert node.accepts("n2", MessageKind.PRE_VOTE)
    assert node.generation == UNKNOWN, "it is no leader that speaks"
    assert node.accepts("n3", MessageKind.HEARTBEAT)
    assert node.generation == UNKNOWN, "it has nothing for this node yet"
    assert node.accepts("n3", MessageKind.APPEND)
    assert connected_with == [{"n3"}], "nor is the other one to hear this node, which it has let in"
    assert [
        node.accepts("n2", kind) for kind in (MessageKind.APPEND, MessageKind.SNAPSHOT, MessageKind.REQUEST_VOTE)
    ] == [False] * 3
    node.dial(2.0)
    assert connected_with.pop() == {"n2", "n3"}, "it is asked again, and refused"
    assert refusing_generation(str(node.judge(of_before.to_wire()))) == (2, stored.incarnation)
    assert not node.accepts("n2", MessageKind.APPEND), "its connection is open, and no greeting comes over it"
    assert node.judge(replace(of_before, generation=2).to_wire()) is None
    assert node.accepts("n2", MessageKind.APPEND), "it is another one by now"
    assert node.greeting()["generation"] == 2
    assert open_storage(journal, "c", "n1", Random(1)).generation == UNKNOWN, "of nothing"
    journal.append(Entry(b"", 1, 1))
    assert open_storage(journal, "c", "n1", Random(1)).generation == 2
    stranger = replace(of_after, cluster="another", generation=9)
    assert "this is cluster c" in str(node.judge(stranger.to_wire()))
    assert failures == []
    node.judge(replace(of_after, generation=3).to_wire())
    assert "n1 holds generation 2" in str(failures)


def test_restored_node_has_its_generation_even_if_empty() -> None:
    journal = MemoryJournal()
    open_storage(journal, "c", "n1", Random(1))
    keep_restored(journal, (0, 0), 5, "backup")
    assert open_storage(journal, "c", "n1", Random(1)).generation == 5


def test_older_generations_and_unknown_nodes_stop_no_node() -> None:
    newer = replace(KNOWN, generation=3)
    assert outlived("n3", 3, newer, refusal("n1", 2) | refusal("n2", 2)) is None
    assert outlived("n3", 1, KNOWN, refusal("n8", 2) | refusal("n9", 2)) is None


def test_membership_changes_and_encoding_keep_the_generation() -> None:
    later = replace(KNOWN, generation=4).without("n3")
    assert later.generation == 4
    assert Membership.from_wire(later.to_wire()) == later


def test_membership_without_generation_is_of_the_first() -> None:
    assert Membership.from_wire(KNOWN.to_wire()[:3]).generation == 1


def test_forced_single_voter_begins_a_generation_and_excludes_others() -> None:
    alone = KNOWN.alone("n2", 2)
    assert (alone.voters, alone.removed, alone.generation) == ({"n2"}, {"n1", "n3"}, 2)
    assert alone.version == KNOWN.version + 1


def founder(member: str, generation: int, origin: str) -> Introductions:
    own = replace(greeting(member), generation=generation, origin=origin)
    return Introductions(own, Founding(own, ADDRESSES))


def test_founders_must_start_with_the_same_backup() -> None:
    provisional = Founding(greeting("n1"), ADDRESSES).provisional()
    first = founder("n1", 2, "backup one")
    same, other = founder("n2", 2, "backup one"), founder("n3", 2, "backup two")
    assert first.judge(same.greeting(provisional), provisional) is None
    assert "restore the same backup" in str(first.judge(other.greeting(provisional), provisional))
    empty = founder("n3", 1, "")
    assert "n3 is of generation 1" in str(first.judge(empty.greeting(provisional), provisional))


def test_restored_group_is_founded_in_its_generation() -> None:
    founders = {member: founder(member, 5, "backup") for member in ADDRESSES}
    provisional = Founding(greeting("n1"), ADDRESSES).provisional()
    for member, one in founders.items():
        for other, its in founders.items():
            if other != member:
                one.saw(its.greeting(provisional))
    pins = dict(founders["n1"].pins or {})
    for other in ("n2", "n3"):
        founders["n1"].reported(other, pins)
    found = founders["n1"].found()
    assert found is not None
    assert found.generation == 5


def test_outdated_member_of_the_same_generation_stops_no_node() -> None:
    own = Introductions(greeting("n3"), None)
    own.refused("n1", "two nodes have the name n3", KNOWN)
    others = tuple(replace(each, incarnation="new") for each in KNOWN.members)
    with pytest.raises(DataDirectoryError, match="lost"):
        own.judge(greeting("n1", knows=replace(KNOWN, members=others, version=9)), replace(KNOWN, version=2), 1)
