"""Disks whose fsync takes seconds, in simulated time (scenarios.md, "Everywhere"): a leader that needs them stays;
after its death another one is elected, although every vote must be on disk before it is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from palisade.raftgroup import voting
from palisade.raftgroup.errors import RaftError
from palisade.raftgroup.prevote import SHORT_ATTEMPTS, election_patience_s
from palisade.raftgroup.replica import Replica
from palisade.raftgroup.role import RaftRole
from palisade.raftgroup.timing import RaftTiming
from tests.support.machine import followed_leader
from tests.support.raft_cluster import Cluster, Node, settled
from tests.support.simulation import Stuck

MakeCluster = Callable[..., Cluster]

FSYNC_S = 2.0
SEEDS = range(8)


def slow(nodes: Iterable[Node], fsync_s: float = FSYNC_S) -> None:
    for node in nodes:
        node.disk.fsync_s = fsync_s


def stays(cluster: Cluster) -> bool:
    """Whether leadership and writes continue for half a minute with one follower dead and one slow."""
    leader = settled(cluster)
    dead, slow_one = cluster.followers()
    term = leader.group.term
    cluster.crash(dead.id)
    slow([slow_one])
    try:
        for number in range(4):
            cluster.put(leader.id, "a", str(number), timeout_s=10.0)
            cluster.run_for(5.0)
    except RaftError:
        return False
    return {node.group.term for node in cluster.healthy} == {term}


def test_leader_whose_majority_needs_a_slow_disk_stays(make_cluster: MakeCluster) -> None:
    """The acknowledgement waits for the disk; the heartbeat reply does not."""
    assert all(stays(make_cluster(seed)) for seed in SEEDS)


def test_checker_detects_a_missing_heartbeat_reply(make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Replica, "_send_heartbeat_reply", lambda *_: None)
    assert not any(stays(make_cluster(seed)) for seed in SEEDS)


def elect_with_slow_disks(cluster: Cluster, how_many: int, fsync_s: float, within_s: float) -> Node:
    leader = settled(cluster)
    slow(cluster.followers()[:how_many], fsync_s)
    cluster.run_for(1.0)
    cluster.crash(leader.id, power=False)
    return cluster.leader(within_s)


@pytest.mark.parametrize(("how_many", "fsync_s", "within_s"), [(1, 2.0, 30.0), (2, 1.0, 30.0), (2, 2.0, 60.0)])
def test_leader_is_elected_by_slow_votes_and_stays(
    make_cluster: MakeCluster, how_many: int, fsync_s: float, within_s: float
) -> None:
    for seed in SEEDS:
        cluster = make_cluster(seed)
        leader = elect_with_slow_disks(cluster, how_many, fsync_s, within_s)
        term = leader.group.term
        cluster.run_for(20.0)
        assert (leader.group.leads, leader.group.term) == (True, term)
        slow(cluster.healthy, 0.0005)
        cluster.run_for(4.0)
        assert cluster.put(leader.id, "a", "after")


def terms_led(cluster: Cluster, within_s: float) -> set[int]:
    """The terms in which a node led, until a majority follows a leader."""
    terms: set[int] = set()

    def is_followed() -> bool:
        terms.update(node.group.term for node in cluster.healthy if node.group.role is RaftRole.LEADER)
        return followed_leader(cluster.nodes.values()) is not None

    cluster.run_until(is_followed, within_s)
    return terms


@pytest.mark.parametrize("seed", [45, 47, 50, 51, 52])
def test_voter_does_not_campaign_while_its_vote_is_being_written(make_cluster: MakeCluster, seed: int) -> None:
    """With these seeds it did: its candidate led for a moment, in a term that the voter had just left."""
    cluster = make_cluster(seed)
    leader = settled(cluster)
    slow(cluster.followers(), 1.0)
    cluster.run_for(0.2)
    cluster.crash(leader.id, power=False)
    assert len(terms_led(cluster, 60.0)) == 1


def impatient(attempt: int, timing: RaftTiming) -> tuple[float, float]:
    return election_patience_s(min(attempt, SHORT_ATTEMPTS), timing)


def test_checker_detects_missing_patience_for_slow_votes(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(voting, "election_patience_s", impatient)
    with pytest.raises(Stuck):
        max(elect_with_slow_disks(make_cluster(seed), 2, 2.0, 60.0).id for seed in SEEDS)
