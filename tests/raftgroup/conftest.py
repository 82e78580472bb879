"""Fixtures of the Raft group's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.raft_cluster import Cluster


@pytest.fixture
def make_cluster() -> Iterator[Callable[..., Cluster]]:
    """Clusters in simulated time that end with the test, with a final check."""
    clusters: list[Cluster] = []

    def make(seed: int = 1, members: int = 3, **options: Any) -> Cluster:
        clusters.append(Cluster(seed, members, **options))
        return clusters[-1]

    yield make
    for cluster in clusters:
        cluster.simulation.close()
