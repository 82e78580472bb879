"""Snapshots of the group with something changed around the install: the membership, the disk, the log (issue 16)."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

import palisade.raftgroup.group as group_module
from palisade.base.snapshots import SnapshotMeta
from palisade.raftgroup import journal_identity, snapshots
from palisade.raftgroup.errors import DataDirectoryError
from palisade.raftgroup.group import Group
from palisade.raftgroup.journal_identity import keep_incoming, open_storage, realigned
from palisade.raftgroup.log_retention import LogRetention
from palisade.raftgroup.membership import Membership
from palisade.raftgroup.membership_entries import membership_entry
from palisade.raftgroup.memory_journal import MemoryJournal
from palisade.raftgroup.messages import MessageKind
from palisade.raftgroup.ports import Entry
from tests.support.lone_replica import LoneReplica, voters
from tests.support.raft_cluster import Cluster, Node

MakeCluster = Callable[..., Cluster]
SLOW_S = 0.3


def left_behind_by_a_change(make_cluster: MakeCluster, fsync_s: float = SLOW_S) -> tuple[Cluster, Node]:
    """A follower that is down while a learner is added and the log with that change is compacted. Its disk is slow."""
    cluster = make_cluster(retention=LogRetention(10))
    leader, follower = cluster.leader(), cluster.followers()[0]
    cluster.run_until(cluster.converged)
    cluster.crash(follower.id)
    learner = cluster.add_node("n4")
    cluster.run_for(0.1)
    cluster.call(leader.id, leader.group.add(cluster.member(learner)))
    for number in range(40):
        cluster.put(leader.id, "a", f"v{number}")
    cluster.run_for(2.0)
    assert leader.disk.journal.first.index > 20
    assert leader.group.members.learners == {"n4"}
    follower.disk.fsync_s = fsync_s
    cluster.start(follower.id)
    return cluster, follower


def known_to(follower: Node) -> Membership | None:
    """As its disk has it."""
    journal = follower.disk.journal
    return open_storage(journal, "test", follower.id, Random(1)).membership


def restart_alone(cluster: Cluster, follower: Node) -> None:
    """It can learn what it has forgotten from no other node."""
    cluster.network.isolate(follower.id)
    cluster.restart(follower.id)
    cluster.run_until(lambda: follower.group is not None and follower.group.failed is not None)
    cluster.run_for(3.0)
    assert follower.healthy


def test_membership_of_a_snapshot_is_on_disk_before_the_snapshot_is_the_state(make_cluster: MakeCluster) -> None:
    """Else a node that dies between the two has a store that is ahead of its log, and nothing that explains it."""
    cluster, follower = left_behind_by_a_change(make_cluster)
    cluster.run_until(lambda: follower.disk.machine.installs == 1)
    restart_alone(cluster, follower)
    assert follower.group.members.learners == {"n4"}
    follower.disk.fsync_s = 0.0005
    cluster.network.heal()
    cluster.run_until(cluster.converged)
    cluster.checkers.check_run()


def test_membership_of_a_snapshot_survives_the_second_start_after_a_crash_in_the_install(
    make_cluster: MakeCluster,
) -> None:
    """The first start takes it from the mark of the install; the log that it resets then is whole for the second."""
    cluster, follower = left_behind_by_a_change(make_cluster)
    cluster.run_until(lambda: follower.disk.machine.installs == 1)
    for _ in range(2):
        restart_alone(cluster, follower)
        assert follower.group.members.learners == {"n4"}
    assert known_to(follower) == cluster.leader().group.members


def test_membership_of_an_installed_snapshot_survives_two_restarts(make_cluster: MakeCluster) -> None:
    cluster, follower = left_behind_by_a_change(make_cluster, fsync_s=0.0005)
    cluster.run_until(lambda: follower.disk.machine.installs == 1)
    cluster.run_until(cluster.converged)
    cluster.run_for(0.1)
    assert follower.disk.journal.first.index > 20, "its log begins with the snapshot"
    for _ in range(2):
        restart_alone(cluster, follower)
        assert follower.group.members.learners == {"n4"}


def test_install_keeps_the_membership_of_its_index_and_not_a_newer_one(make_cluster: MakeCluster) -> None:
    """A later change stands in the log: if another leader replaces that entry, no membership but the kept one is
    left."""
    cluster = make_cluster()
    leader, follower = cluster.leader(), cluster.followers()[0]
    cluster.run_until(cluster.converged)
    before = leader.group.members
    learner = cluster.add_node("n4")
    cluster.run_for(0.1)
    leader.process.start(leader.group.add(cluster.member(learner)))
    cluster.run_until(lambda: follower.group.members.learners == {"n4"})
    index, term = follower.disk.machine.applied
    assert index < follower.disk.journal.last.index, "the change is not committed there"
    follower.group.installed(SnapshotMeta("s", index, term, None), before)
    assert known_to(follower) == before
    assert follower.group.members.learners == {"n4"}


def test_mark_of_another_install_does_not_explain_a_store_ahead_of_its_log() -> None:
    journal = MemoryJournal()
    keep_incoming(journal, 9, 2, voters("n1", "n2"))
    for applied in ((9, 3), (8, 2)):
        with pytest.raises(DataDirectoryError, match="one of them was lost or replaced"):
            realigned(journal, applied, voters("n1"))
    assert realigned(journal, (9, 2), voters("n1")) == voters("n1", "n2")


def test_store_of_another_history_does_not_fit_a_log_that_reaches_its_index() -> None:
    """One of the two was put back from another time: entries would be applied twice, or left out."""
    journal = MemoryJournal()
    for index in range(1, 7):
        journal.append(Entry(b"", index, 2))
    assert realigned(journal, (4, 2), voters("n1")) == voters("n1")
    with pytest.raises(DataDirectoryError, match="one of them was lost or replaced"):
        realigned(journal, (4, 1), voters("n1"))


# The same at random moments: the membership changes while a follower is away, its disk is slow, and it dies again and
# again around the install. `MembershipMatching` looks at every start.

SEEDS = range(12)


def random_installs(seed: int) -> None:
    cluster = Cluster(seed, 3, retention=LogRetention(10))
    try:
        leader = cluster.leader()
        follower = cluster.followers()[0]
        learner = cluster.add_node("n4")
        cluster.run_for(0.1)
        for _ in range(3):
            change_while_away(cluster, leader, learner, follower)
            come_back(cluster, follower)
        cluster.network.heal()
        cluster.run_until(cluster.converged)
        cluster.checkers.check_run()
    finally:
        cluster.simulation.close()


def change_while_away(cluster: Cluster, leader: Node, learner: Node, follower: Node) -> None:
    cluster.crash(follower.id)
    is_in = learner.id in leader.group.members.learners
    if learner.group.removal.error is not None:
        cluster.wipe(learner.id)
        cluster.start(learner.id)
        cluster.run_for(0.1)
    change = leader.group.remove(learner.id) if is_in else leader.group.add(cluster.member(learner))
    cluster.call(leader.id, change)
    while leader.disk.journal.first.index <= follower.disk.journal.last.index:
        for number in range(20):
            cluster.put(leader.id, "a", f"v{number}")
        cluster.run_for(1.5)


def come_back(cluster: Cluster, follower: Node) -> None:
    """Dead at a moment around the install, started, dead again, perhaps out of reach of all others."""
    machine, lot = follower.disk.machine, cluster.random.random
    follower.disk.fsync_s = 0.4 * lot() ** 2
    cluster.start(follower.id)
    installs = machine.installs
    if lot() < 0.7:
        cluster.run_until(lambda: machine.installs > installs, within_s=60.0)
    for _ in range(3):
        cluster.run_for(1.5 * follower.disk.fsync_s * lot())
        if lot() < 0.4:
            cluster.network.isolate(follower.id)
        cluster.restart(follower.id)
        cluster.run_for(lot())
        cluster.network.heal()
    follower.disk.fsync_s = 0.0005
    cluster.run_until(lambda: follower.healthy and follower.disk.machine.installs > installs, within_s=60.0)
    cluster.run_for(0.5)


@pytest.mark.parametrize("seed", SEEDS)
def test_crashes_around_an_install_lose_no_membership(seed: int) -> None:
    random_installs(seed)


def unsynced(patch: pytest.MonkeyPatch) -> None:
    """The mark of the install is only in memory when the snapshot becomes the state."""
    keep = snapshots.keep_incoming

    def kept(journal: MemoryJournal, *arguments: Any) -> None:
        async def once() -> None:
            del journal.sync  # type: ignore[method-assign]

        keep(journal, *arguments)
        journal.sync = once  # type: ignore[method-assign]

    patch.setattr(snapshots, "keep_incoming", kept)


def forgotten_by_the_start(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(journal_identity, "keep_membership", lambda *_: None)


def forgotten_by_the_install(patch: pytest.MonkeyPatch) -> None:
    installed = Group.installed

    def forgets(self: Group, *arguments: Any) -> None:
        with pytest.MonkeyPatch.context() as once:
            once.setattr(group_module, "keep_membership", lambda *_: None)
            installed(self, *arguments)

    patch.setattr(Group, "installed", forgets)


PLANTS = (unsynced, forgotten_by_the_start, forgotten_by_the_install)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_planted_install_that_loses_the_membership_is_seen(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in SEEDS:
        try:
            random_installs(seed)
        except (AssertionError, DataDirectoryError):
            return
    pytest.fail("nobody has seen it")


# What is in the log when the snapshot becomes the state.


def with_entries(last: int, committed: int) -> LoneReplica:
    """A follower whose disk has entries of term 1 up to `last`, all acknowledged, and has applied them up to
    `committed`."""
    follower = LoneReplica()
    follower.gets_append("n2", 1, [(index, 1) for index in range(1, last + 1)], prev=(0, 0), commit=committed)
    follower.settle()
    replies = follower.said(MessageKind.APPEND_REPLY, "n2")
    assert replies[-1][1:3] == [last + 1, True], "all of them are acknowledged"
    return follower


def install(follower: LoneReplica, index: int, term: int, membership: Membership | None = None) -> None:
    machine = follower.machine
    machine.install([*machine.log, *((each, term, ()) for each in range(machine.applied[0] + 1, index + 1))])
    follower.replica.installed_snapshot(index, term, membership or follower.membership)


def test_install_keeps_the_entries_after_the_snapshot_that_were_acknowledged() -> None:
    """The leader may have counted them for a commit: a majority without them would lose it."""
    follower = with_entries(6, committed=2)
    install(follower, 4, 1)
    assert (follower.journal.first.index, follower.log) == (4, [(5, 1), (6, 1)])
    follower.crash()
    assert (follower.journal.last.index, follower.journal.last.term) == (6, 1)


def test_install_drops_entries_of_another_term_than_the_snapshots() -> None:
    follower = with_entries(6, committed=2)
    install(follower, 4, 2)
    assert (follower.journal.first.index, follower.log) == (4, [])


def test_install_keeps_a_membership_that_stands_after_the_snapshot() -> None:
    follower = LoneReplica()
    later = voters("n1", "n2")
    follower.gets_append("n2", 1, [(1, 1), (2, 1), (3, 1)], prev=(0, 0), commit=1)
    follower.gets("n2", MessageKind.APPEND, 1, 1, 3, 1, follower.clock.time, [[membership_entry(later), 1]])
    follower.settle()
    install(follower, 3, 1)
    assert follower.replica.membership.voters == {"n1", "n2"}
    assert follower.replica.membership_at(3).voters == {"n1", "n2", "n3"}


def test_install_over_another_log_takes_the_membership_of_the_snapshot() -> None:
    follower = with_entries(6, committed=2)
    install(follower, 9, 3, voters("n1", "n2", "n3", "n4"))
    assert follower.replica.membership.voters == {"n1", "n2", "n3", "n4"}
    follower.gets_append("n2", 3, [(10, 3)], prev=(9, 3), commit=10)
    follower.settle()
    assert follower.machine.applied == (10, 3)


def test_leader_sends_its_entries_to_the_members_of_its_snapshot() -> None:
    follower = with_entries(6, committed=2)
    install(follower, 9, 1, voters("n1", "n3", "n4"))
    follower.leads("n4")
    follower.sent.clear()
    follower.waits(follower.timing.election_timeout_max_s / 4)
    follower.settle()
    assert {member for member, kind, _ in follower.sent if kind == MessageKind.APPEND} == {"n3", "n4"}


@pytest.mark.parametrize("kept", [0, 3])
def test_acknowledged_entries_after_a_snapshot_are_applied_once_they_are_committed(kept: int) -> None:
    follower = with_entries(4 + kept, committed=2)
    install(follower, 4, 1)
    follower.gets_append("n2", 1, [], prev=(4 + kept, 1), commit=4 + kept)
    follower.settle()
    assert follower.machine.applied == (4 + kept, 1)
