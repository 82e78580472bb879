"""A node that would vote for another candidate lets it go first: a leader's death costs one election (issue 2, "How
fast").
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from palisade.raftgroup.prevote import StandBack
from tests.support.raft_cluster import Cluster, settled
from tests.support.simulation import Stuck

MakeCluster = Callable[..., Cluster]

SEEDS = range(60)


def terms_of_an_election(make_cluster: MakeCluster, seed: int) -> int:
    """How many terms an election takes after a kill of the leader, at some moment between heartbeats."""
    cluster = make_cluster(seed)
    leader = settled(cluster)
    term = leader.group.term
    cluster.run_for(0.3 + 0.01 * (seed % 10))
    cluster.crash(leader.id, power=False)
    return cluster.leader().group.term - term


def test_votes_are_not_split_when_a_leader_dies(make_cluster: MakeCluster) -> None:
    assert {terms_of_an_election(make_cluster, seed) for seed in SEEDS} == {1}


def test_checker_detects_split_votes_without_standing_back(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message wakes its receiver, whose timeout may have passed since its last tick: campaigns often coincide."""
    monkeypatch.setattr(StandBack, "holds", lambda *_: False)
    assert max(terms_of_an_election(make_cluster, seed) for seed in SEEDS) > 1


def test_one_of_two_candidates_that_ask_at_once_goes_first(make_cluster: MakeCluster) -> None:
    """If both stood back, both would ask again at once after that, and so on."""
    for seed in SEEDS:
        cluster = make_cluster(seed)
        leader = settled(cluster)
        term = leader.group.term
        cluster.crash(leader.id, power=False)
        for node in cluster.healthy:
            node.group._replica.engine.retry_election(1.25, 1.25)
        crashed_at = cluster.simulation.now
        assert cluster.leader().group.term == term + 1
        assert cluster.simulation.now - crashed_at < 1.5


def elect_beside_a_deaf_candidate(make_cluster: MakeCluster, seed: int) -> float:
    """How long the others take to elect a leader while one member requests votes all the time and receives no answer.
    They need each other, all three: of five, one is dead and one is deaf.
    """
    cluster = make_cluster(seed, members=5)
    leader = settled(cluster)
    deaf = max(node.id for node in cluster.followers())
    cluster.network.intercept = lambda _sender, receiver, _kind, _body: receiver != deaf
    cluster.run_for(2.0)
    cluster.crash(leader.id, power=False)
    crashed_at = cluster.simulation.now
    assert cluster.leader(within_s=10.0).id != deaf
    return cluster.simulation.now - crashed_at


def test_candidate_that_receives_nothing_does_not_prevent_a_leader(
    make_cluster: MakeCluster,
) -> None:
    """It may cost the others a second attempt, because they need every vote."""
    assert max(elect_beside_a_deaf_candidate(make_cluster, seed) for seed in range(20)) < 4.0


def test_checker_detects_missing_rest_beside_a_deaf_candidate(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(self: StandBack, now: float) -> None:
        self._began_at = now

    monkeypatch.setattr(StandBack, "begin", begin)
    with pytest.raises(Stuck):
        max(elect_beside_a_deaf_candidate(make_cluster, seed) for seed in range(20))


def test_standing_back_lasts_a_moment_and_repeats_only_after_a_rest() -> None:
    """Thus a candidate that campaigns all the time and cannot win does not prevent others from campaigning."""
    stand_back = StandBack(0.25, 1.0)
    held = []
    for eighth in range(24):
        stand_back.begin(eighth / 8)
        held.append(stand_back.holds(eighth / 8))
    assert held == ([True] * 2 + [False] * 6) * 3
