"""A cluster of three real processes for the tests of one file; it is restored to full health before each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.processes import Cluster


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.kill()


@pytest.fixture
async def cluster(shared_cluster: Cluster) -> Cluster:
    """Three nodes that are ready; none is paused, whatever the previous test did."""
    for node in shared_cluster.running:
        node.resume()
    shared_cluster.start()
    await shared_cluster.ready()
    return shared_cluster


@pytest.fixture
def new_cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Creates clusters for one test, with options for their nodes; they are killed at its end."""
    made: list[Cluster] = []

    def make(size: int = 3, **options: str) -> Cluster:
        folder = tmp_path / f"cluster{len(made)}"
        folder.mkdir()
        made.append(Cluster(folder, size, **options))
        return made[-1]

    yield make
    for cluster in made:
        cluster.kill()
