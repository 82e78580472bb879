"""The counts that a member keeps of its elections and of its peers (issue 17, seed 002)."""

from __future__ import annotations

from collections.abc import Callable

from palisade.raftgroup.log_retention import LogRetention
from tests.support.raft_cluster import Cluster, settled


def test_status_of_the_leader_has_progress_retries_and_snapshots_of_each_member(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster(retention=LogRetention(10))
    leader = settled(cluster)
    lagging, current = cluster.followers()
    cluster.crash(lagging.id)
    for number in range(40):
        cluster.put(leader.id, "a", f"v{number}")
    cluster.run_for(2.0)
    down = {each.member.id: each for each in leader.group.status().members}
    assert down[current.id].match_index == leader.disk.journal.last.index
    assert (down[leader.id].next_index, down[lagging.id].snapshots_sent) == (None, 0)
    cluster.start(lagging.id)
    cluster.run_until(cluster.converged)
    cluster.run_for(1.0)
    status = leader.group.status()
    after = {each.member.id: each for each in status.members}
    last = leader.disk.journal.last.index
    for follower in (lagging, current):
        assert (after[follower.id].match_index, after[follower.id].next_index) == (last, last + 1)
    assert (after[lagging.id].snapshots_sent, after[current.id].snapshots_sent) == (1, 0)
    assert after[lagging.id].append_retries > after[current.id].append_retries
    assert (status.snapshots_installed, lagging.group.status().snapshots_installed) == (0, 1)
    assert lagging.group.status().members[0].next_index is None


def test_status_without_a_leader_names_the_voters_that_are_not_connected(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster()
    alone, *others = (settled(cluster), *cluster.followers())
    assert alone.group.status().no_leader == ""
    for other in others:
        cluster.crash(other.id)
    cluster.run_until(lambda: alone.group.status().leader is None)
    cluster.run_for(5.0)
    down = ", ".join(sorted(other.id for other in others))
    assert alone.group.status().no_leader.endswith(
        f"a majority of the voters must be up and connected; not connected: {down}"
    )


def test_status_counts_elections(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    leader = settled(cluster)
    before = leader.group.status()
    assert (before.elections_won, before.elections_started >= 1) == (1, True)
    cluster.crash(leader.id)
    successor = cluster.leader()
    assert successor.group.status().elections_won == 1
    assert successor.group.status().elections_started >= 1
