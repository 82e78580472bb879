"""A cluster of real processes with data nodes, and the fixture that shares one among the tests of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from palisade.client import Client
from tests.support.processes import Cluster, FollowerProcess, NodeProcess, until


class DataNode(FollowerProcess):
    """A follower that stores segments."""

    def command(self) -> list[str]:
        return [*super().command(), "--segments"]


class DataCluster:
    """Three members without segments, and data nodes that follow them. `options`: of the data nodes."""

    NAMES: Sequence[str] = ("f1", "f2", "f3")

    def __init__(self, folder: Path, **options: str) -> None:
        self.folder = folder
        self.cluster = Cluster(folder)
        at = self.cluster["n1"].http
        self.data_nodes = [DataNode(folder, name, join=at, **options) for name in self.NAMES]

    def __getitem__(self, name: str) -> NodeProcess:
        return next(node for node in (*self.cluster.nodes, *self.data_nodes) if node.id == name)

    async def ready(self) -> None:
        """Every process runs and is ready, whatever the test before did."""
        self.cluster.start()
        await self.cluster.ready()
        for node in self.data_nodes:
            if not node.running:
                node.start()
        for node in self.data_nodes:
            await until(node.ready, f"{node.id} being ready")

    def client(self) -> Client:
        return Client(self.cluster.endpoints, timeout_s=15.0)

    def kill(self) -> None:
        self.cluster.kill()
        for node in self.data_nodes:
            node.kill()


@pytest.fixture(scope="module")
def data_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[type[DataCluster]], DataCluster]]:
    """The cluster of this kind that the tests of one file share; its processes are killed after them."""
    made: dict[type[DataCluster], DataCluster] = {}

    def of_kind(kind: type[DataCluster]) -> DataCluster:
        if kind not in made:
            made[kind] = kind(tmp_path_factory.mktemp("data-nodes"))
        return made[kind]

    yield of_kind
    for each in made.values():
        each.kill()
