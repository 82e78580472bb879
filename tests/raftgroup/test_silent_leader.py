"""A leader that stands still, its connections open: what the others know of it, and what waits for it (issue 2).

Found with real processes: a follower that was alone with two stopped members called the old leader its leader, and
itself ready, for ever; and a read waited for the stopped leader although another one led already.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.support.raft_cluster import Cluster, settled

MakeCluster = Callable[..., Cluster]


def test_a_member_that_hears_nobody_knows_no_leader(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    settled(cluster)
    alone, *others = [*cluster.followers(), cluster.leader()]
    for node in others:
        cluster.network.block(node.id, alone.id)
    cluster.run_for(2.0)
    assert alone.group.leader is None
    assert alone.group.status().leader is None
    cluster.network.heal()
    cluster.run_until(lambda: alone.group.leader is not None)


def test_a_read_under_way_to_a_leader_that_stands_still_goes_to_the_next_one(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    old = settled(cluster)
    follower = cluster.followers()[0]
    assert old.process is not None
    old.process.paused = True
    began = cluster.simulation.now
    assert cluster.read(follower.id, "a", timeout_s=30.0) == "first"
    assert cluster.simulation.now - began < 4.0
