"""Read barriers on leaders and followers: whole groups in simulated time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from palisade.raftgroup.errors import NO_MAJORITY, Unavailable
from palisade.raftgroup.messages import MessageKind
from tests.support.raft_cluster import Cluster, settled

MakeCluster = Callable[..., Cluster]


class TestReads:
    def test_leader_with_its_lease_reads_without_waiting(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster()
        leader = settled(cluster)
        begin, sent = cluster.simulation.now, cluster.network.delivered
        assert cluster.read(leader.id, "a") == "first"
        assert (cluster.simulation.now, cluster.network.delivered) == (begin, sent)

    def test_follower_read_sees_every_write_completed_before_it(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster()
        leader = settled(cluster)
        slow = cluster.followers()[0]
        slow.disk.fsync_s = 0.3
        for number in range(10):
            cluster.put(leader.id, "a", f"v{number}")
            assert cluster.read(slow.id, "a") == f"v{number}"

    def test_read_without_a_majority_is_refused_in_time(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster()
        leader = settled(cluster)
        for follower in cluster.followers():
            cluster.crash(follower.id)
        cluster.run_for(1.0)
        begin = cluster.simulation.now
        with pytest.raises(Unavailable, match=f"^{NO_MAJORITY}$"):
            cluster.read(leader.id, "a", timeout_s=2.0)
        assert cluster.simulation.now - begin < 2.5

    def test_read_without_a_leader_is_refused_with_the_reason_once(self, make_cluster: MakeCluster) -> None:
        """Issue 16: "nothing was read, try again: this node is not the leader of the group: no leader is known yet,
        try again"."""
        cluster = make_cluster()
        settled(cluster)
        left, *others = cluster.nodes.values()
        for node in others:
            cluster.crash(node.id)
        cluster.run_for(20.0)
        with pytest.raises(Unavailable, match=f"^{NO_MAJORITY}$"):
            cluster.read(left.id, "a", timeout_s=2.0)

    def test_concurrent_reads_share_one_request(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster()
        settled(cluster)
        follower = cluster.followers()[0]
        asked: list[int] = []
        watch = cluster.network.overhear

        def overhear(sender: str, receiver: str, kind: int, body: Any) -> None:
            watch(sender, receiver, kind, body)
            if kind == MessageKind.REQUEST:
                asked.append(kind)

        cluster.network.overhear = overhear
        reads = [follower.process.start(follower.group.read_barrier()) for _ in range(100)]
        cluster.run_until(lambda: all(read.done() for read in reads))
        assert len(asked) == 1

    def test_new_leader_reads_nothing_before_its_first_commit(self, make_cluster: MakeCluster) -> None:
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
