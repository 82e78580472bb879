"""scenarios.md, "Raft group": whole groups on simulated time, one line of it after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from raftgroup.errors import MembershipRefused, OutcomeUnknown, RaftError, Unavailable
from raftgroup.membership import MemberRole
from raftgroup.messages import Kind
from raftgroup.role import Role
from tests.support.raft_cluster import Cluster, Node
from tests.support.raft_network import Weather

MakeCluster = Callable[..., Cluster]


def settled(cluster: Cluster) -> Node:
    """A leader, a first write, and everybody at the same point; returns the leader."""
    leader = cluster.leader()
    cluster.put(leader.id, "a", "first")
    cluster.run_until(cluster.converged)
    return leader


class TestElections:
    def test_an_isolated_laggard_returns_and_leader_and_term_are_unchanged(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster()
        leader = settled(cluster)
        laggard, term = cluster.followers()[0], leader.group.term
        cluster.network.isolate(laggard.id)
        for number in range(10):
            cluster.put(leader.id, "a", f"v{number}")
            cluster.run_for(1.0)
        cluster.network.heal()
        cluster.run_until(cluster.converged)
        cluster.run_for(5.0)
        assert {node.group.term for node in cluster.healthy} == {term}
        assert {node.group.leader for node in cluster.healthy} == {leader.id}

    def test_a_link_cut_between_the_leader_and_one_follower_costs_no_election(self, make_cluster: MakeCluster) -> None:
        """The follower hears the third member only, who hears the leader and refuses its vote."""
        cluster = make_cluster()
        leader = settled(cluster)
        cut, term = cluster.followers()[0], leader.group.term
        cluster.network.block(leader.id, cut.id)
        cluster.network.block(cut.id, leader.id)
        cluster.run_for(20.0)
        assert (leader.group.leads, leader.group.term) == (True, term)
        assert leader.group.try_read_barrier()

    @pytest.mark.parametrize("direction", ["to the leader", "from the leader"])
    def test_a_leader_that_is_heard_in_one_direction_only_is_replaced_and_reads_nothing_stale(
        self, make_cluster: MakeCluster, direction: str
    ) -> None:
        cluster = make_cluster()
        leader = settled(cluster)
        for follower in cluster.followers():
            pair = (follower.id, leader.id) if direction == "to the leader" else (leader.id, follower.id)
            cluster.network.block(*pair)
        cluster.run_until(lambda: any(node is not leader for node in cluster.leaders()))
        successor = next(node for node in cluster.leaders() if node is not leader)
        cluster.put(successor.id, "a", "second")
        assert not leader.group.try_read_barrier()
        with pytest.raises(Unavailable):
            cluster.read(leader.id, "a", timeout_s=1.0)
        cluster.network.heal()
        assert cluster.read(leader.id, "a") == "second"
        cluster.checkers.check_run()

    def test_an_isolated_leader_stops_reading_and_committing_within_the_lease(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster()
        leader = settled(cluster)
        cluster.network.isolate(leader.id)
        cluster.run_for(cluster.timing.election_timeout_min_s)
        assert not leader.group.try_read_barrier()
        with pytest.raises(RaftError):
            cluster.put(leader.id, "a", "lost", timeout_s=0.2)
        cluster.run_for(5.0)
        assert leader.disk.machine.registers["a"].startswith("first")

    def test_a_paused_leader_wakes_up_and_reads_nothing_stale(self, make_cluster: MakeCluster) -> None:
        """etcd #20418: its first turn after the pause decides by the clock."""
        cluster = make_cluster()
        leader = settled(cluster)
        leader.process.pause()
        cluster.run_until(lambda: bool(cluster.leaders()))
        cluster.put(cluster.leader().id, "a", "second")
        leader.process.resume()
        assert not leader.group.try_read_barrier(), "before it has read a single message"
        assert cluster.read(leader.id, "a") == "second"

    def test_planted_a_lease_that_outlives_the_pause_is_seen(
        self, make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("raftgroup.quorum_lease.QuorumLease.remaining_s", lambda *_: 100.0)
        cluster = make_cluster()
        leader = settled(cluster)
        cluster.read(leader.id, "a")
        cluster.network.isolate(leader.id)
        leader.process.pause()
        cluster.run_until(lambda: bool(cluster.leaders()))
        cluster.put(cluster.leader().id, "a", "second")
        cluster.run_for(0.01)
        leader.process.resume()
        assert cluster.read(leader.id, "a") == "first"
        with pytest.raises(AssertionError, match="stands before it"):
            cluster.checkers.check_run()

    def test_the_loss_of_all_power_loses_nothing_acknowledged(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster()
        settled(cluster)
        for number in range(5):
            cluster.put(cluster.leader().id, "a", f"v{number}")
            for member in cluster.nodes:
                cluster.crash(member)
            for member in cluster.nodes:
                cluster.start(member)
            assert cluster.read(cluster.leader().id, "a") == f"v{number}"
        cluster.checkers.check_run()


class TestHandOver:
    def test_a_hand_over_takes_a_few_round_trips(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster()
        leader = settled(cluster)
        target = cluster.followers()[1]
        begin = cluster.simulation.now
        assert cluster.call(leader.id, leader.group.transfer(target.id)) == target.id
        cluster.put(target.id, "a", "second")
        assert cluster.simulation.now - begin < 0.2

    def test_any_member_can_ask_for_it(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster()
        settled(cluster)
        target, other = cluster.followers()
        assert cluster.call(other.id, other.group.transfer(target.id)) == target.id

    def test_to_nobody_in_reach_it_is_refused(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster()
        leader = settled(cluster)
        for wanted in ("n9", cluster.followers()[0].id):
            cluster.crash(wanted) if wanted != "n9" else None
            cluster.run_for(2.5)
            with pytest.raises(MembershipRefused, match="can't take over"):
                cluster.call(leader.id, leader.group.transfer(wanted))

    def test_when_the_order_to_campaign_is_lost_the_leader_goes_on_without_its_lease(
        self, make_cluster: MakeCluster
    ) -> None:
        cluster = make_cluster()
        leader = settled(cluster)
        target = cluster.followers()[0]
        cluster.network.intercept = lambda _from, _to, kind, _body: kind != Kind.CAMPAIGN_NOW
        with pytest.raises(Unavailable, match="did not take over in time"):
            cluster.call(leader.id, leader.group.transfer(target.id))
        assert leader.group.leads
        assert not leader.group.try_read_barrier(), "the campaign may still come"
        assert cluster.read(leader.id, "a") == "first", "by a round of heartbeats"
        cluster.put(leader.id, "a", "second")

    def test_a_campaign_that_was_delayed_takes_over_without_a_stale_read(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster()
        leader = settled(cluster)
        target = cluster.followers()[0]
        kept: list[tuple[str, Any]] = []

        def keep(sender: str, _receiver: str, kind: int, body: Any) -> bool:
            if kind == Kind.CAMPAIGN_NOW:
                kept.append((sender, body))
            return kind != Kind.CAMPAIGN_NOW

        cluster.network.intercept = keep
        with pytest.raises(Unavailable):
            cluster.call(leader.id, leader.group.transfer(target.id))
        cluster.run_for(3.0)
        sender, body = kept[0]
        target.process.call(target.group.on_message, sender, int(Kind.CAMPAIGN_NOW), body)
        cluster.run_until(lambda: target.group.leads)
        cluster.put(target.id, "a", "second")
        assert cluster.read(leader.id, "a") == "second"
        cluster.checkers.check_run()


class TestMembership:
    def joined(self, cluster: Cluster, member: str, *, becomes_voter: bool = True) -> Node:
        leader = cluster.leader()
        node = cluster.add_node(member)
        cluster.run_for(0.1)
        cluster.call(leader.id, leader.group.add(cluster.member(node, becomes_voter=becomes_voter)))
        return node

    def test_a_member_joins_learns_and_is_promoted_by_itself(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster()
        settled(cluster)
        node = self.joined(cluster, "n4")
        assert "n4" in cluster.leader().group.members.learners
        cluster.run_until(lambda: node.group.role is Role.FOLLOWER)
        cluster.run_until(cluster.converged)
        assert cluster.leader().group.members.voters == {"n1", "n2", "n3", "n4"}
        assert cluster.read("n4", "a") == "first"

    def test_a_learner_neither_votes_for_itself_nor_counts(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster()
        settled(cluster)
        node = self.joined(cluster, "n4", becomes_voter=False)
        cluster.run_until(cluster.converged)
        assert node.group.role is Role.LEARNER
        for member in ("n1", "n2", "n3"):
            cluster.crash(member)
        cluster.run_for(10.0)
        assert node.group.role is Role.LEARNER
        assert cluster.leaders() == []

    def test_a_learner_is_promoted_only_once_it_has_caught_up(self, make_cluster: MakeCluster) -> None:
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

    def test_a_removed_member_campaigns_and_nobody_notices(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster()
        leader = settled(cluster)
        gone, term = cluster.followers()[0], leader.group.term
        cluster.call(leader.id, leader.group.remove(gone.id))
        cluster.run_for(20.0)
        assert (leader.group.term, leader.group.leads) == (term, True)
        assert gone.group.role in (Role.FOLLOWER, Role.REMOVED)
        assert gone.id not in leader.peers.connected()
        with pytest.raises(RaftError):
            cluster.put(gone.id, "a", "of a removed member", timeout_s=1.0)
        assert cluster.put(leader.id, "a", "of a member")

    def test_a_leader_that_is_removed_hands_over_first(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster()
        leader = settled(cluster)
        cluster.call(leader.id, leader.group.remove(leader.id))
        successor = next(node for node in cluster.leaders() if node is not leader)
        assert leader.id not in successor.group.members.voters
        assert cluster.put(successor.id, "a", "second")

    def test_of_two_changes_at_once_the_second_is_refused(self, make_cluster: MakeCluster) -> None:
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

    def test_a_change_is_made_while_a_node_is_down_and_the_node_hears_of_it(self, make_cluster: MakeCluster) -> None:
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

    def test_a_change_that_only_absent_voters_could_commit_is_refused(self, make_cluster: MakeCluster) -> None:
        """It would count at once, and the group could neither commit nor undo it."""
        cluster = make_cluster()
        leader = settled(cluster)
        down, up = cluster.followers()
        cluster.crash(down.id)
        cluster.run_for(3.0)
        with pytest.raises(MembershipRefused, match="no majority of them answers"):
            cluster.call(leader.id, leader.group.remove(up.id))
        cluster.call(leader.id, leader.group.remove(down.id))
        assert leader.group.members.voters == {leader.id, up.id}

    def test_a_change_that_was_cut_off_is_unknown_and_undone_by_the_next_leader(
        self, make_cluster: MakeCluster
    ) -> None:
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
    def test_a_wiped_node_comes_back_under_its_old_id_from_nothing(
        self, make_cluster: MakeCluster, crash_leader: bool
    ) -> None:
        """RATIS-2523: no endless loop, and its old vote and its old acknowledgements are gone for good."""
        cluster = make_cluster()
        leader = settled(cluster)
        wiped = cluster.followers()[0]
        cluster.wipe(wiped.id)
        cluster.start(wiped.id)
        cluster.run_for(3.0)
        assert wiped.group.role is Role.LEARNER
        assert wiped.disk.journal.last.index == 0, "nobody has invited it yet"
        if crash_leader:
            cluster.restart(leader.id)
            cluster.run_for(1.0)
        leader = cluster.leader()
        cluster.call(leader.id, leader.group.add(cluster.member(wiped, becomes_voter=True)))
        cluster.run_until(lambda: wiped.group.role is Role.FOLLOWER)
        cluster.run_until(cluster.converged)
        appends = cluster.network.delivered
        cluster.run_for(5.0)
        assert cluster.network.delivered - appends < 500, "heartbeats and their answers, no loop"
        cluster.crash(leader.id)
        assert cluster.read(cluster.leader().id, "a") == "first"
        cluster.checkers.check_run()

    def test_a_wiped_founding_member_takes_no_part_and_is_told_why(self, make_cluster: MakeCluster) -> None:
        """It stops when it hears it from somebody who greets it; those whom it greets refuse it, and say the same."""
        cluster = make_cluster()
        settled(cluster)
        cluster.tolerates_failed_nodes = True
        for wiped in cluster.followers():
            founders = wiped.founders
            cluster.wipe(wiped.id)
            wiped.founders = founders
            cluster.start(wiped.id)
            refusals: list[str] = []
            cluster.run_until(lambda node=wiped: node.group is not None)
            wiped.group.on_refused = lambda _member, reason, said=refusals: said.append(reason)
            cluster.run_for(10.0)
            told = [*refusals, str(wiped.group.failed.exception())] if wiped.failed else refusals
            assert told
            assert all("--join" in reason for reason in told)
            assert wiped.group.term == 0
            assert wiped.disk.journal.vote is None
            cluster.crash(wiped.id)

    def test_a_node_that_came_back_and_leads_reaches_a_laggard_that_knows_its_old_storage(
        self, make_cluster: MakeCluster
    ) -> None:
        cluster = make_cluster(members=5)
        settled(cluster)
        laggard, wiped = cluster.followers()[:2]
        cluster.crash(laggard.id)
        cluster.wipe(wiped.id)
        cluster.start(wiped.id)
        cluster.run_for(2.5)
        leader = cluster.leader()
        cluster.call(leader.id, leader.group.add(cluster.member(wiped, becomes_voter=True)))
        cluster.run_until(lambda: wiped.group.role is Role.FOLLOWER)
        cluster.call(leader.id, leader.group.transfer(wiped.id))
        cluster.start(laggard.id)
        cluster.run_until(cluster.converged)
        assert laggard.group.leader == wiped.id

    def test_the_storage_of_the_leader_is_not_replaced_under_it(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster()
        leader = settled(cluster)
        stranger = cluster.member(leader)
        stranger = type(stranger)(leader.id, MemberRole.LEARNER, "another storage", {"peer": leader.id})
        with pytest.raises(MembershipRefused, match="let it hand over"):
            cluster.call(leader.id, leader.group.add(stranger))

    def test_a_promotion_that_its_member_never_heard_of_leaves_a_group_that_can_elect(
        self, make_cluster: MakeCluster
    ) -> None:
        """Raft thesis 4.2.2: two voters and a learner; the leader dies when only the other voter has the promotion."""
        cluster = make_cluster(members=2)
        leader = settled(cluster)
        node = self.joined(cluster, "n3", becomes_voter=False)
        cluster.run_for(0.5)
        cluster.network.block(leader.id, "n3")
        cluster.call(leader.id, leader.group.promote("n3"))
        assert node.group.role is Role.LEARNER
        cluster.crash(leader.id)
        cluster.network.heal()
        assert cluster.put(cluster.leader().id, "a", "second")


class TestReads:
    def test_a_leader_with_its_lease_reads_without_waiting(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster()
        leader = settled(cluster)
        begin, sent = cluster.simulation.now, cluster.network.delivered
        assert cluster.read(leader.id, "a") == "first"
        assert (cluster.simulation.now, cluster.network.delivered) == (begin, sent)

    def test_a_follower_sees_every_write_that_ended_before_its_read_began(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster()
        leader = settled(cluster)
        slow = cluster.followers()[0]
        slow.disk.fsync_s = 0.3
        for number in range(10):
            cluster.put(leader.id, "a", f"v{number}")
            assert cluster.read(slow.id, "a") == f"v{number}"

    def test_without_a_majority_a_read_is_refused_in_time(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster()
        leader = settled(cluster)
        for follower in cluster.followers():
            cluster.crash(follower.id)
        cluster.run_for(1.0)
        begin = cluster.simulation.now
        with pytest.raises(Unavailable):
            cluster.read(leader.id, "a", timeout_s=2.0)
        assert cluster.simulation.now - begin < 2.5

    def test_many_reads_of_one_moment_share_one_question(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster()
        settled(cluster)
        follower = cluster.followers()[0]
        asked: list[int] = []
        watch = cluster.network.overhear

        def overhear(sender: str, receiver: str, kind: int, body: Any) -> None:
            watch(sender, receiver, kind, body)
            if kind == Kind.REQUEST:
                asked.append(kind)

        cluster.network.overhear = overhear
        reads = [follower.process.start(follower.group.read_barrier()) for _ in range(100)]
        cluster.run_until(lambda: all(read.done() for read in reads))
        assert len(asked) == 1

    def test_a_new_leader_reads_nothing_before_its_first_commit(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster()
        leader = settled(cluster)
        heir = cluster.followers()[0]
        leading: list[bool] = []
        turned = cluster.simulation.after_turn

        def watch(process: Any) -> None:
            turned(process)
            if process is heir.process and heir.group._replica.engine.leads:
                leading.append(heir.group.try_read_barrier())
                own = heir.disk.journal.term_at(heir.disk.machine.applied[0])
                assert not leading[-1] or own == heir.group.term

        cluster.simulation.after_turn = watch
        cluster.call(leader.id, leader.group.transfer(heir.id))
        cluster.run_for(1.0)
        assert leading[0] is False
        assert leading[-1] is True


@pytest.mark.parametrize("seed", range(5))
def test_a_storm_of_late_repeated_and_reordered_messages_breaks_nothing(make_cluster: MakeCluster, seed: int) -> None:
    cluster = make_cluster(seed)
    settled(cluster)
    cluster.network.weather = Weather((0.0005, 0.02), lose=0.1, repeat=0.5, reorder=0.5)
    for number in range(40):
        node = cluster.healthy[number % 3]
        try:
            cluster.put(node.id, "a", f"v{number}")
            cluster.read(node.id, "a")
        except RaftError:
            continue
    cluster.network.heal()
    cluster.run_for(6.0)
    cluster.run_until(cluster.converged)
    cluster.checkers.check_run()
