"""A node whose seeds belong to another cluster stops, and names that cluster (issue 16)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from palisade.base.address import Address
from palisade.topology.own_node import OwnNode
from palisade.topology.physical import PhysicalTopology
from palisade.topology.records import NodeRole
from tests.support.waiting import until
from tests.topology.swim.test_udp import free_udp_port

Make = Callable[..., PhysicalTopology]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    made: list[PhysicalTopology] = []

    def one(name: str, cluster: str, *seeds: PhysicalTopology) -> PhysicalTopology:
        address = f"127.0.0.1:{free_udp_port()}"
        own = OwnNode(
            name, cluster, {}, False, Address.parse(address), address, tuple(each.swim.own.address for each in seeds)
        )
        made.append(PhysicalTopology(own, NodeRole.FOLLOWER))
        return made[-1]

    yield one
    for each in made:
        each.socket.close()


async def test_node_whose_seeds_all_belong_to_another_cluster_is_refused(make: Make) -> None:
    member = make("n1", "right")
    lost = make("f1", "wrong", member)
    await member.start()
    await lost.start()
    assert lost.refusal() is None
    await until(lambda: lost.refusal() is not None)
    assert "another cluster than wrong" in str(lost.refusal())
    assert "this node belongs to cluster right" in str(lost.refusal())
    assert member.refusal() is None


async def test_node_that_finds_its_cluster_beside_another_one_is_not_refused(make: Make) -> None:
    foreign, member = make("n1", "other"), make("n1", "right")
    node = make("f1", "right", foreign, member)
    for each in (foreign, member, node):
        await each.start()
    await until(lambda: node.socket.strangers and len(node.swim.live()) > 1)
    assert node.refusal() is None
