"""A new cluster from one survivor: its whole log stays, and no earlier member takes part (issue 3).

Also pending membership changes that only lost members could have committed (issue 2).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import pytest

from palisade.raftgroup import quorum_loss as forced_cluster
from palisade.raftgroup import replication
from palisade.raftgroup.admission import MemberAdmission
from palisade.raftgroup.errors import DataDirectoryError, MembershipRefused, MustJoin
from palisade.raftgroup.journal_identity import keep_membership, open_storage
from palisade.raftgroup.membership import Member, MemberRole, Membership
from palisade.raftgroup.memory_journal import MemoryJournal
from palisade.raftgroup.messages import MessageKind
from palisade.raftgroup.quorum_loss import Survivor, force_new_cluster, survey
from tests.support.lone_replica import LoneReplica, voters
from tests.support.raft_cluster import Cluster, Node, settled
from tests.support.register_machine import put
from tests.support.simulation import Stuck

MakeCluster = Callable[..., Cluster]
SEEDS = range(8)


def look(node: Node) -> Survivor:
    return survey(node.disk.journal, node.disk.machine.applied, Random(1))


def force(cluster: Cluster, member: str) -> Survivor:
    """`member` is down; its disk becomes the only one of a new generation."""
    node = cluster.nodes[member]
    found = look(node)
    commands = [put("forced", "generation", str(found.generation + 1))]
    journal = node.disk.journal
    node.disk.fsync_s = 0.0
    asyncio.run(force_new_cluster(MemoryOf(journal), found, found.generation + 1, 0, commands))
    return found


class MemoryOf(MemoryJournal):
    """The same state and disk, synced outside the simulation."""

    def __init__(self, journal: MemoryJournal) -> None:
        super().__init__()
        self.disk.stored, self._owner = journal.disk.stored, journal
        self.crash()

    async def sync(self) -> None:
        await super().sync()
        self._owner.disk.stored = self.disk.stored
        self._owner.crash()


def without_majority(make_cluster: MakeCluster, seed: int) -> Cluster:
    """Three nodes with a write; then n2 and n3 are lost permanently, and n1 is stopped."""
    cluster = make_cluster(seed)
    settled(cluster)
    for member in ("n2", "n3", "n1"):
        cluster.crash(member)
    return cluster


@pytest.mark.parametrize("seed", SEEDS)
def test_survivor_continues_alone_with_its_whole_log(make_cluster: MakeCluster, seed: int) -> None:
    cluster = without_majority(make_cluster, seed)
    assert force(cluster, "n1").lost == ("n2", "n3")
    cluster.start("n1")
    assert cluster.leader().id == "n1"
    assert cluster.read("n1", "a") == "first"
    cluster.put("n1", "b", "second")
    group = cluster.nodes["n1"].group
    assert (group.members.voters, group.members.generation) == ({"n1"}, 2)
    assert cluster.nodes["n1"].disk.machine.registers["generation"] == "2"


@pytest.mark.parametrize("seed", SEEDS)
def test_members_of_the_earlier_generation_are_refused_with_the_reason_and_stop(
    make_cluster: MakeCluster, seed: int
) -> None:
    """Together they would be a majority of the old group; the survivor ignores them."""
    cluster = without_majority(make_cluster, seed)
    force(cluster, "n1")
    cluster.tolerates_failed_nodes = True
    cluster.start("n1")
    term = cluster.leader().group.term
    for member in ("n2", "n3"):
        cluster.start(member)
    cluster.run_until(lambda: all(cluster.nodes[member].failed for member in ("n2", "n3")))
    for member in ("n2", "n3"):
        with pytest.raises(DataDirectoryError, match=rf"{member} holds generation 1.*--join"):
            cluster.nodes[member].group.failed.result()
    cluster.put("n1", "b", "second")
    assert cluster.leader().group.term == term


@pytest.mark.parametrize("seed", SEEDS)
def test_member_that_returns_empty_copies_everything_and_votes_again(make_cluster: MakeCluster, seed: int) -> None:
    cluster = without_majority(make_cluster, seed)
    force(cluster, "n1")
    cluster.start("n1")
    cluster.put("n1", "b", "second")
    for member in ("n2", "n3"):
        cluster.wipe(member)
        cluster.start(member)
        node = cluster.nodes[member]
        cluster.run_until(lambda node=node: node.group is not None)
        cluster.call("n1", cluster.nodes["n1"].group.add(cluster.member(node, becomes_voter=True)))
    cluster.run_until(lambda: len(cluster.nodes["n1"].group.members.voters) == 3)
    cluster.put("n1", "c", "third")
    cluster.run_until(cluster.converged)
    for member in ("n1", "n2", "n3"):
        assert cluster.read(member, "a") == "first"
        assert cluster.nodes[member].group.members.generation == 2


@pytest.mark.parametrize("seed", SEEDS)
def test_founding_member_with_a_new_disk_is_told_to_join_the_newer_generation(
    make_cluster: MakeCluster, seed: int
) -> None:
    """Issue 16: its empty folder was "of the earlier" generation, so `palisade up` let it stay down."""
    cluster = without_majority(make_cluster, seed)
    founders = cluster.nodes["n2"].founders
    force(cluster, "n1")
    cluster.start("n1")
    cluster.wipe("n3")
    cluster.start("n3")
    n1, n3 = cluster.nodes["n1"], cluster.nodes["n3"]
    cluster.put("n1", "b", "second")
    cluster.run_until(lambda: n3.group is not None)
    cluster.call("n1", n1.group.add(cluster.member(n3, becomes_voter=True)))
    cluster.run_until(lambda: len(n1.group.members.voters) == 2)
    cluster.tolerates_failed_nodes = True
    cluster.wipe("n2")
    cluster.nodes["n2"].founders = founders
    cluster.start("n2")
    cluster.run_until(lambda: cluster.nodes["n2"].failed)
    with pytest.raises(MustJoin, match="the data directory of n2 is new: start it with --join instead"):
        cluster.nodes["n2"].group.failed.result()


@pytest.mark.parametrize("seed", SEEDS)
def test_all_lost_founding_members_are_told_to_join_the_survivor(make_cluster: MakeCluster, seed: int) -> None:
    """They waited for it forever: one survivor of a newer generation is no majority of the founding members."""
    cluster = without_majority(make_cluster, seed)
    founders = {member: cluster.nodes[member].founders for member in ("n2", "n3")}
    force(cluster, "n1")
    cluster.tolerates_failed_nodes = True
    for member, found in founders.items():
        cluster.wipe(member)
        cluster.nodes[member].founders = found
    for member in ("n1", "n2", "n3"):
        cluster.start(member)
    for member in founders:
        cluster.run_until(lambda member=member: cluster.nodes[member].failed)
        with pytest.raises(MustJoin, match=f"the data directory of {member} is new: start it with --join instead"):
            cluster.nodes[member].group.failed.result()


def half_joined(make_cluster: MakeCluster, seed: int, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """n1 continues alone, and n2 joins it with a new disk. Its log has reached a membership from before the break, in
    which it has another storage, and no further.
    """
    monkeypatch.setattr(replication, "APPEND_BYTES_MAX", 1)
    cluster = make_cluster(seed)
    group = settled(cluster).group
    cluster.call("n1", group.add(Member("n4", MemberRole.LEARNER, "of n4", {"peer": "n4"})))
    cluster.put("n1", "a", "first")
    cluster.run_until(cluster.converged)
    for member in ("n2", "n3", "n1"):
        cluster.crash(member)
    last = force(cluster, "n1").last_index
    cluster.network.intercept = lambda _, to, kind, body: (
        to != "n2" or kind != MessageKind.APPEND or body[2] < last or body[5] == []
    )
    cluster.start("n1")
    cluster.leader()
    cluster.wipe("n2")
    cluster.start("n2")
    n2 = cluster.nodes["n2"]
    cluster.run_until(lambda: n2.group is not None)
    cluster.call("n1", cluster.nodes["n1"].group.add(cluster.member(n2, becomes_voter=True)))
    cluster.run_until(lambda: n2.disk.journal.synced_index == last)
    assert n2.group.members.generation == 1
    return cluster


@pytest.mark.parametrize("restarted", ["n1", "n2"])
@pytest.mark.parametrize("seed", SEEDS)
def test_joining_member_with_an_old_log_is_admitted_again(
    make_cluster: MakeCluster, seed: int, restarted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Restores 11024: the connection broke, and from then on all refused each other."""
    cluster = half_joined(make_cluster, seed, monkeypatch)
    cluster.restart(restarted)
    cluster.run_for(1.0)
    cluster.network.intercept = lambda *_: True
    cluster.run_until(lambda: cluster.nodes["n1"].group.members.voters == {"n1", "n2"})
    cluster.put("n1", "b", "second")
    assert cluster.read("n2", "a") == "first"
    assert cluster.nodes["n2"].group.members.generation == 2


def joining(make_cluster: MakeCluster, seed: int, taken: int, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """n2 has lost its disk and joins; it has copied `taken` entries, and no membership, when the others are lost."""
    monkeypatch.setattr(replication, "APPEND_BYTES_MAX", 1)
    cluster = make_cluster(seed)
    settled(cluster)
    cluster.wipe("n2")
    cluster.network.intercept = lambda _, to, kind, body: (
        to != "n2" or kind != MessageKind.APPEND or body[2] < taken or body[5] == []
    )
    cluster.start("n2")
    n2 = cluster.nodes["n2"]
    cluster.run_until(lambda: n2.group is not None)
    leader = cluster.leader()
    cluster.call(leader.id, leader.group.add(cluster.member(n2, becomes_voter=True)))
    cluster.run_until(lambda: n2.group.generation == 1 and n2.disk.journal.synced_index == taken)
    cluster.crash("n3")
    cluster.crash("n1")
    force(cluster, "n1")
    cluster.tolerates_failed_nodes = True
    return cluster


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("taken", [0, 2])
@pytest.mark.parametrize("seed", range(3))
def test_member_joining_at_the_break_must_start_anew(
    make_cluster: MakeCluster, seed: int, taken: int, restarted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows no member that could refuse it. A node without data only needs a restart."""
    cluster = joining(make_cluster, seed, taken, monkeypatch)
    n2 = cluster.nodes["n2"]
    cluster.network.intercept = lambda *_: True
    cluster.start("n1")
    cluster.leader()
    if restarted:
        cluster.restart("n2")
        cluster.run_until(lambda: n2.group is not None)
    cluster.call("n1", cluster.nodes["n1"].group.add(cluster.member(n2, becomes_voter=True)))
    cluster.run_until(lambda: n2.failed or cluster.nodes["n1"].group.members.voters == {"n1", "n2"})
    assert n2.failed == (taken > 0 or not restarted)
    if not n2.failed:
        return
    with pytest.raises(DataDirectoryError, match=r"n2 holds generation 1.*--join"):
        n2.group.failed.result()
    if taken == 0:
        cluster.restart("n2")
        cluster.run_until(lambda: cluster.nodes["n1"].group.members.voters == {"n1", "n2"})


def test_half_joined_survivor_begins_no_existing_generation(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log ends in the first generation; it was copying the log of the second."""
    cluster = half_joined(make_cluster, 1, monkeypatch)
    cluster.crash("n2")
    journal = cluster.nodes["n2"].disk.journal
    named = Member("n2", MemberRole.VOTER, cluster.nodes["n2"].group.incarnation, {"peer": "n2"})
    both = Membership((*voters("n1").members, named), version=1, generation=1)
    keep_membership(journal, both)
    monkeypatch.setattr(forced_cluster, "read_memberships", lambda *_: None)
    assert look(cluster.nodes["n2"]).generation == 2


def test_checker_detects_a_joining_member_that_uses_its_logs_membership(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A joining member uses the newest membership in its log."""
    monkeypatch.setattr(MemberAdmission, "_join", lambda *_: None)
    with pytest.raises(Stuck):
        test_joining_member_with_an_old_log_is_admitted_again(make_cluster, 1, "n1", monkeypatch)


def test_membership_change_without_possible_commit_is_undone(make_cluster: MakeCluster) -> None:
    """The leader removes n3 at the moment when n2 is lost: two voters, one of them lost, would be stuck permanently."""
    cluster = make_cluster(5)
    leader = settled(cluster).id
    gone, other = (member for member in ("n1", "n2", "n3") if member != leader)
    group = cluster.nodes[leader].group
    cluster.crash(gone)
    group._replica.propose_membership(group.members.without(other))
    group._turn()
    cluster.run_for(0.001)
    cluster.crash(other)
    cluster.run_for(3.0)
    assert not cluster.leaders()
    cluster.crash(leader)
    found = force(cluster, leader)
    assert found.membership.voters == {leader, gone}, "the change is in the log, and not committed"
    cluster.start(leader)
    assert cluster.leader().id == leader
    assert cluster.read(leader, "a") == "first"
    assert cluster.nodes[leader].group.members.voters == {leader}


def test_entries_not_known_to_be_committed_are_kept() -> None:
    """They may have been acknowledged: only the lost majority knew."""
    lone = LoneReplica()
    lone.gets_append("n2", 1, [(1, 1), (2, 1)], prev=(0, 0))
    lone.settle()
    assert lone.replica.engine.commit_index == 0
    found = Survivor("test", "n1", lone.replica.membership, *lone.log[-1])
    asyncio.run(force_new_cluster(lone.journal, found, 2, 0, [put("forced", "g", "2")]))
    lone.crash()
    lone.settle()
    assert lone.replica.leads
    assert lone.machine.registers == {"a": "2.1", "g": "2"}


def test_crash_before_the_sync_leaves_the_survivor_unchanged(make_cluster: MakeCluster) -> None:
    cluster = without_majority(make_cluster, 3)
    journal = cluster.nodes["n1"].disk.journal
    before = look(cluster.nodes["n1"])
    never = MemoryOf(journal)

    async def half_done() -> None:
        task = asyncio.ensure_future(force_new_cluster(Unsynced(journal), before, 2, 0, []))
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(half_done())
    never.crash()
    journal.crash()
    assert look(cluster.nodes["n1"]) == before


class Unsynced(MemoryOf):
    async def sync(self) -> None:
        await asyncio.Event().wait()


def test_force_is_refused_if_unnecessary_or_impossible(make_cluster: MakeCluster) -> None:
    with pytest.raises(DataDirectoryError, match="has ever used the data directory"):
        survey(MemoryJournal(), (0, 0), Random(1))
    cluster = without_majority(make_cluster, 1)
    force(cluster, "n1")
    with pytest.raises(MembershipRefused, match="only voter"):
        look(cluster.nodes["n1"])
    with pytest.raises(MembershipRefused, match="not newer"):
        asyncio.run(force_new_cluster(MemoryJournal(), look(cluster.nodes["n2"]), 1, 0, []))


@pytest.mark.parametrize("others", [("n2", "n3"), ("n1", "n2", "n3")], ids=["removed", "another storage of its own"])
def test_non_member_by_its_own_log_cannot_continue_alone(others: tuple[str, ...]) -> None:
    journal = MemoryJournal()
    open_storage(journal, "test", "n1", Random(1))
    keep_membership(journal, voters(*others))
    with pytest.raises(DataDirectoryError, match="no member of test by its own log"):
        survey(journal, (0, 0), Random(1))
