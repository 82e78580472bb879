"""Random schedules of crashes, partitions, pauses, storms, slow disks, hand-overs and changes of membership.

Every rule of `tests/support/raft_checkers.py` is checked in each. A failure prints its seed, and the seed repeats it.
"""

from __future__ import annotations

import pytest

from raftgroup.compaction import LogRetention
from tests.support.raft_cluster import Cluster
from tests.support.raft_nemesis import Clients, Nemesis, add_outsiders, all_vote

FAULTS_S, QUIET_S = 8.0, 4.0


def random_run(seed: int, members: int = 3, *, changes_members: bool = False) -> Cluster:
    """Faults for a while, then none: everybody agrees, everything acknowledged is there, a leader leads."""
    cluster = Cluster(seed, members, drift=0.008, retention=LogRetention(20 if seed % 2 else 10_000))
    try:
        _run(cluster, changes_members=changes_members)
    finally:
        cluster.simulation.close()
    return cluster


def _run(cluster: Cluster, *, changes_members: bool) -> None:
    if changes_members:
        cluster.leader()
    clients, nemesis = Clients(cluster), Nemesis(cluster, changes_members=changes_members)
    cluster.run_for(FAULTS_S)
    nemesis.stop()
    cluster.leader(within_s=15.0)
    while changes_members and not all_vote(cluster):
        add_outsiders(cluster)
        cluster.run_for(1.0)
        if cluster.simulation.now > FAULTS_S + 60.0:
            raise AssertionError(f"seed {cluster.simulation.seed}: the members could not be brought back together")
    cluster.run_for(1.0)
    clients.going = False
    cluster.run_for(QUIET_S)
    cluster.run_until(cluster.converged, within_s=5.0)
    cluster.checkers.check_run()


@pytest.mark.parametrize("block", range(8))
def test_a_random_schedule_breaks_no_rule(block: int) -> None:
    for seed in range(block * 10, block * 10 + 10):
        cluster = random_run(seed, members=5 if seed % 5 == 0 else 3)
        assert any(operation.outcome == "applied" for operation in cluster.checkers.history)


@pytest.mark.parametrize("block", range(4))
def test_a_random_schedule_with_changes_of_membership_breaks_no_rule(block: int) -> None:
    for seed in range(1000 + block * 10, 1000 + block * 10 + 10):
        random_run(seed, members=3 + seed % 3, changes_members=True)


def test_a_seed_repeats_its_run_exactly() -> None:
    first, second = random_run(4), random_run(4)
    assert first.simulation.turns == second.simulation.turns
    assert first.checkers.committed == second.checkers.committed
