"""A node whose vault lacks changes of the cluster opens a realtime segment once it has them (issue 17)."""

from __future__ import annotations

import pytest

from palisade.catalog.publication import Manifest
from palisade.metastore.requests import Put, Txn
from palisade.segments.realtime import PAUSE_S
from palisade.wire.segment_errors import NotIngesting
from tests.segments.test_realtime import opened, started
from tests.support.realtime_world import COLUMNS, DAY, SOURCE, IngestingNode, RealtimeWorld


async def test_opening_waits_until_the_vault_has_the_publication_before_it() -> None:
    """A change is held for 3.31 s if a node does not answer. After 2 s the opening was refused because of "publications
    by others", even if the earlier one was this node's own."""
    world, node = await started()
    await opened(world, node, "w1")
    world.write(Txn((), (Put(Manifest(SOURCE).key, Manifest(SOURCE, 7).to_bytes()),)))
    pauses = late_vault(world, node, pauses=16)
    held = await node.ingester.open(SOURCE, DAY, COLUMNS, 1, "w2")
    assert pauses == [PAUSE_S] * 16
    assert node.ingester.held[held.name] is held


async def test_node_that_lags_behind_names_its_revision() -> None:
    """It named publications by others (`PublicationOvertaken`), which is not retried at another node."""
    world, node = await started()
    world.write(Txn((), (Put(Manifest(SOURCE).key, Manifest(SOURCE, 7).to_bytes()),)))
    revision = node.replica.revision
    late_vault(world, node, pauses=10_000)
    with pytest.raises(
        NotIngesting,
        match=f"its vault is at revision {revision} and the cluster at {revision + 1}, because a change is not "
        "released yet or the node is recovering",
    ):
        await node.ingester.open(SOURCE, DAY, COLUMNS, 1, "w1")
    assert not node.ingester.held


def late_vault(world: RealtimeWorld, node: IngestingNode, pauses: int) -> list[float]:
    """The vault of the node receives nothing more before it has paused that often. Returns its pauses."""
    seen = list[float]()

    async def pause(seconds: float) -> None:
        seen.append(seconds)
        for broker in world.brokers.values():
            world.deliver(broker.apply, broker.revision)
        if len(seen) == pauses:
            world.deliver_all()

    async def released(_revision: int) -> None:
        """At once."""

    node.ingester._pause = pause
    world.released = released  # type: ignore[method-assign]
    return seen
