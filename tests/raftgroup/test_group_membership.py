"""scenarios.md, "Raft group", membership: add, promote, remove, replace, wiped disks; whole groups, simulated time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from palisade.raftgroup.errors import DataDirectoryError, MembershipRefused, OutcomeUnknown, RaftError
from palisade.raftgroup.founding import OTHER_STORAGE
from palisade.raftgroup.membership import MemberRole
from palisade.raftgroup.role import RaftRole
from tests.support.raft_cluster import Cluster, Node, settled

MakeCluster = Callable[..., Cluster]


class TestMembership:
    def joined(self, cluster: Cluster, member: str, *, becomes_voter: bool = True) -> Node:
        leader = cluster.leader()
        node = cluster.add_node(member)
        cluster.run_for(0.1)
        cluster.call(leader.id, leader.group.add(cluster.member(node, becomes_voter=becomes_voter)))
        return node

    def test_new_member_catches_up_and_is_promoted(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster()
        settled(cluster)
        node = self.joined(cluster, "n4")
        assert "n4" in cluster.leader().group.members.learners
        cluster.run_until(lambda: node.group.role is RaftRole.FOLLOWER)
        cluster.run_until(cluster.converged)
        assert cluster.leader().group.members.voters == {"n1", "n2", "n3", "n4"}
        assert cluster.read("n4", "a") == "first"

    def test_learner_neither_campaigns_nor_counts(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster()
        settled(cluster)
        node = self.joined(cluster, "n4", becomes_voter=False)
        cluster.run_until(cluster.converged)
        assert node.group.role is RaftRole.LEARNER
        for member in ("n1", "n2", "n3"):
            cluster.crash(member)
        cluster.run_for(10.0)
        assert node.group.role is RaftRole.LEARNER
        assert cluster.leaders() == []

    def test_learner_is_promoted_only_after_catching_up(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster()
        leader = settled(cluster)
        self.joined(cluster, "n4", becomes_voter=False)
        cluster.run_for(0.5)
        cluster.call(leader.id, leader.group.promote("n4"))
        assert "n4" in leader.group.members.voters
        cluster.add_node("n5")
        cluster.run_for(0.1)
        cluster.network.isolate("n5")
        cluster.call(leader.id, leader.group.add(cluster.member(cluster.nodes["n5"])))
        with pytest.raises(MembershipRefused, match="promote it once it has caught up"):
            cluster.call(leader.id, leader.group.promote("n5"))
        with pytest.raises(MembershipRefused, match=r"^n5 can't take over: it is a learner; promote it first"):
            cluster.call(leader.id, leader.group.transfer("n5"))

    def test_refused_promotion_of_a_silent_learner_names_its_cause(self, make_cluster: MakeCluster) -> None:
        """It was "n4 holds the log up to an unknown index of 7"."""
        cluster = make_cluster()
        leader = settled(cluster)
        cluster.add_node("n4")
        cluster.network.isolate("n4")
        cluster.run_for(2.5)
        cluster.call(leader.id, leader.group.add(cluster.member(cluster.nodes["n4"])))
        reason = f"n4 is not connected to the leader {leader.id}, so its log is not known: start its node, and promote "
        with pytest.raises(MembershipRefused, match=f"^{reason}it once it has caught up$"):
            cluster.call(leader.id, leader.group.promote("n4"))

    def test_campaign_of_a_removed_member_has_no_effect(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster()
        leader = settled(cluster)
        gone, term = cluster.followers()[0], leader.group.term
        cluster.call(leader.id, leader.group.remove(gone.id))
        cluster.run_for(20.0)
        assert (leader.group.term, leader.group.leads) == (term, True)
        assert gone.group.role in (RaftRole.FOLLOWER, RaftRole.REMOVED)
        assert gone.id not in leader.peers.connected()
        with pytest.raises(RaftError):
            cluster.put(gone.id, "a", "of a removed member", timeout_s=1.0)
        assert cluster.put(leader.id, "a", "of a member")

    def test_removed_leader_hands_over_first(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster()
        leader = settled(cluster)
        cluster.call(leader.id, leader.group.remove(leader.id))
        successor = next(node for node in cluster.leaders() if node is not leader)
        assert leader.id not in successor.group.members.voters
        assert cluster.put(successor.id, "a", "second")

    @pytest.mark.parametrize("leads", [False, True])
    @pytest.mark.parametrize("fsync_s", [0.0005, 0.1, 0.3])
    def test_member_that_requests_its_own_removal_receives_the_result(
        self, make_cluster: MakeCluster, fsync_s: float, leads: bool
    ) -> None:
        """The executing leader closed the connection as soon as the change was in its log, before the answer."""
        for seed in range(8):
            cluster = make_cluster(seed)
            gone = settled(cluster) if leads else (settled(cluster), cluster.followers()[0])[1]
            for node in cluster.healthy:
                node.disk.fsync_s = fsync_s
            cluster.call(gone.id, gone.group.remove(gone.id))
            leader = next(node for node in cluster.leaders() if node is not gone)
            assert leader.group.members.get(gone.id) is None
            cluster.run_for(3.0)
            assert gone.id not in leader.peers.connected()

    def test_second_concurrent_change_is_refused(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster()
        leader = settled(cluster)
        nodes = [cluster.add_node("n4"), cluster.add_node("n5")]
        cluster.run_for(0.1)
        changes = [leader.process.start(leader.group.add(cluster.member(node))) for node in nodes]
        cluster.run_until(lambda: all(change.done() for change in changes))
        errors = [change.exception() for change in changes]
        assert errors[0] is None
        assert isinstance(errors[1], MembershipRefused)
        assert leader.group.members.learners == {"n4"}

    def test_change_while_a_node_is_down_reaches_it_later(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster()
        leader = settled(cluster)
        down = cluster.followers()[0]
        cluster.crash(down.id)
        cluster.run_for(2.5)
        self.joined(cluster, "n4")
        cluster.run_until(lambda: "n4" in leader.group.members.voters)
        cluster.start(down.id)
        cluster.run_until(cluster.converged)
        assert down.group.members == leader.group.members

    def test_change_that_only_absent_voters_could_commit_is_refused(self, make_cluster: MakeCluster) -> None:
        """It would be effective at once, and the group could neither commit nor undo it."""
        cluster = make_cluster()
        leader = settled(cluster)
        down, up = cluster.followers()
        cluster.crash(down.id)
        cluster.run_for(3.0)
        with pytest.raises(MembershipRefused, match="no majority of them answers"):
            cluster.call(leader.id, leader.group.remove(up.id))
        cluster.call(leader.id, leader.group.remove(down.id))
        assert leader.group.members.voters == {leader.id, up.id}

    def test_isolated_change_is_unknown_and_undone_by_the_next_leader(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster()
        leader = settled(cluster)
        others = cluster.followers()
        cluster.network.isolate(leader.id)
        change = leader.process.start(leader.group.remove(others[0].id))
        cluster.run_until(change.done)
        assert isinstance(change.exception(), OutcomeUnknown)
        cluster.network.heal()
        cluster.run_until(cluster.converged)
        assert leader.group.members.voters == {"n1", "n2", "n3"}
        assert cluster.put(leader.id, "a", "all three")

    @pytest.mark.parametrize("crash_leader", [False, True])
    def test_wiped_node_rejoins_under_its_old_id_from_nothing(
        self, make_cluster: MakeCluster, crash_leader: bool
    ) -> None:
        """RATIS-2523: no endless loop, and its old vote and its old acknowledgements are lost."""
        cluster = make_cluster()
        leader = settled(cluster)
        wiped = cluster.followers()[0]
        cluster.wipe(wiped.id)
        cluster.start(wiped.id)
        cluster.run_for(3.0)
        assert wiped.group.role is RaftRole.LEARNER
        assert wiped.disk.journal.last.index == 0, "it was not added yet"
        if crash_leader:
            cluster.restart(leader.id)
            cluster.run_for(1.0)
        leader = cluster.leader()
        cluster.call(leader.id, leader.group.add(cluster.member(wiped, becomes_voter=True)))
        cluster.run_until(lambda: wiped.group.role is RaftRole.FOLLOWER)
        cluster.run_until(cluster.converged)
        appends = cluster.network.delivered
        cluster.run_for(5.0)
        assert cluster.network.delivered - appends < 500, "heartbeats and their answers, no loop"
        cluster.crash(leader.id)
        assert cluster.read(cluster.leader().id, "a") == "first"
        cluster.checkers.check_run()

    @pytest.mark.parametrize("member", ["n1", "n2", "n3"])
    def test_wiped_founder_takes_no_part_and_stops_with_the_remedy(
        self, make_cluster: MakeCluster, member: str
    ) -> None:
        """n1 always dials first, and learns it from their refusals; n3 from the greetings of others."""
        cluster = make_cluster()
        settled(cluster)
        cluster.tolerates_failed_nodes = True
        wiped = cluster.nodes[member]
        founders = wiped.founders
        cluster.wipe(member)
        wiped.founders = founders
        cluster.start(member)
        cluster.run_until(lambda: wiped.failed, within_s=5.0)
        error = wiped.group.failed.exception()
        assert isinstance(error, DataDirectoryError)
        assert "start with --join and an empty data directory" in str(error)
        assert wiped.group.term == 0
        assert wiped.disk.journal.vote is None

    def test_outdated_member_that_knows_an_old_storage_stops_no_rejoined_node(self, make_cluster: MakeCluster) -> None:
        """Restarted as a founding member, with its new membership only in its log, it meets the outdated member."""
        cluster = make_cluster(members=5)
        settled(cluster)
        back, laggard = cluster.nodes["n1"], cluster.nodes["n5"]
        founders = back.founders
        cluster.crash("n5")
        cluster.wipe("n1")
        back.disk.machine.persist = lambda: None
        cluster.start("n1")
        leader = cluster.leader()
        cluster.run_until(lambda: back.group is not None and back.group.failed is not None)
        cluster.call(leader.id, leader.group.add(cluster.member(back, becomes_voter=True)))
        cluster.run_until(lambda: "n1" in leader.group.members.voters and back.group.members == leader.group.members)
        cluster.run_for(0.1)
        back.founders = founders
        for other in ("n2", "n3", "n4"):
            for member in ("n1", "n5"):
                cluster.network.blocked |= {(other, member), (member, other)}
        cluster.restart("n1")
        cluster.start("n5")
        cluster.run_until(lambda: back.group is not None and "n5" in back.group.status().refusals)
        assert back.group.status().refusals["n5"].startswith(OTHER_STORAGE)
        cluster.run_for(3.0)
        assert not back.failed
        cluster.network.heal()
        cluster.run_until(cluster.converged)
        assert laggard.group.members.get("n1").incarnation == back.group.incarnation

    def test_late_refusal_does_not_affect_later_admission(self, make_cluster: MakeCluster) -> None:
        """tests/sim, scenario storm, seed 21932: a returning node waited forever for admission that it already had."""
        cluster = make_cluster()
        settled(cluster)
        node, other = cluster.followers()
        node.group.on_refused(other.id, f"{OTHER_STORAGE}: {node.id} is known with storage 1, not 2")
        assert node.group.status().refusals == {}
        cluster.crash(other.id)
        cluster.run_until(lambda: other.id not in node.peers.connected())
        assert node.group.status().refusals == {}

    def test_rejoined_leader_reaches_an_outdated_member(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster(members=5)
        settled(cluster)
        laggard, wiped = cluster.followers()[:2]
        cluster.crash(laggard.id)
        cluster.wipe(wiped.id)
        cluster.start(wiped.id)
        cluster.run_for(2.5)
        leader = cluster.leader()
        cluster.call(leader.id, leader.group.add(cluster.member(wiped, becomes_voter=True)))
        cluster.run_until(lambda: wiped.group.role is RaftRole.FOLLOWER)
        cluster.call(leader.id, leader.group.transfer(wiped.id))
        cluster.start(laggard.id)
        cluster.run_until(cluster.converged)
        assert laggard.group.leader == wiped.id

    def test_storage_of_the_leader_cannot_be_replaced(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster()
        leader = settled(cluster)
        stranger = cluster.member(leader)
        stranger = type(stranger)(leader.id, MemberRole.LEARNER, "another storage", {"peer": leader.id})
        with pytest.raises(MembershipRefused, match="transfer leadership before"):
            cluster.call(leader.id, leader.group.add(stranger))

    def test_promotion_unknown_to_its_member_leaves_an_electable_group(self, make_cluster: MakeCluster) -> None:
        """Raft thesis 4.2.2: two voters and a learner; the leader dies when only the other voter has the promotion."""
        cluster = make_cluster(members=2)
        leader = settled(cluster)
        node = self.joined(cluster, "n3", becomes_voter=False)
        cluster.run_for(0.5)
        cluster.network.block(leader.id, "n3")
        cluster.call(leader.id, leader.group.promote("n3"))
        assert node.group.role is RaftRole.LEARNER
        cluster.crash(leader.id)
        cluster.network.heal()
        assert cluster.put(cluster.leader().id, "a", "second")
