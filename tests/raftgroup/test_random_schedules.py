"""Random schedules of crashes, partitions, pauses, storms, slow disks and hand-overs, with every rule checked.

A failure prints its seed, and the seed repeats it exactly: `random_run(<seed>)`.
"""

from __future__ import annotations

import pytest

from tests.support.raft_cluster import Cluster
from tests.support.raft_nemesis import Clients, Nemesis


def random_run(seed: int, members: int = 3, duration_s: float = 8.0) -> Cluster:
    cluster = Cluster(seed, members, drift=0.008)
    clients, nemesis = Clients(cluster), Nemesis(cluster)
    cluster.run_for(duration_s)
    nemesis.stop()
    cluster.leader(within_s=15.0)
    cluster.run_for(1.0)
    clients.going = False
    cluster.run_for(4.0)
    cluster.run_until(cluster.converged, within_s=5.0)
    cluster.checkers.check_run()
    return cluster


@pytest.mark.parametrize("block", range(10))
def test_a_random_schedule_breaks_no_rule(block: int) -> None:
    for seed in range(block * 10, block * 10 + 10):
        cluster = random_run(seed, members=5 if seed % 5 == 0 else 3)
        assert any(operation.outcome == "applied" for operation in cluster.checkers.history)
