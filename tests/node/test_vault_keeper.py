"""The vault of a node, with components that live on it (R4, R10; scenarios.md, "Recovery")."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from metastore.codec import encode_command
from metastore.requests import Compact, FoundCluster, Put
from node.components.lifecycle import Component, Lifecycle, Part
from node.components.listeners import Listeners, Told
from node.feed.local import local_source
from node.service import Service
from node.vault_keeper import OnVault, RecoveryClock, VaultKeeper
from raftgroup.clock import SystemClock
from recovery.catchup import Difference
from tests.support.fake_group import FakeGroup, fake_group
from tests.support.waiting import until


class World(Component):
    """A group of one, and a component that writes down what it hears."""

    def __init__(self, path: Path) -> None:
        self.group: FakeGroup = fake_group()
        self.group.apply([encode_command(FoundCluster("id-1"))])
        self.service = Service(self.group, self.group.store, deadline_s=0.3)
        self.path = path
        self.heard: list[tuple[int, list[bytes]]] = []
        self.began_at: list[int] = []
        self.fails_at = 0

    def keeper(self) -> VaultKeeper:
        self.listeners = Listeners()
        inner = Lifecycle([Part("partitions", self)], self.listeners)
        clock = RecoveryClock(SystemClock(), gentle=False)
        return VaultKeeper(self.path, "n1", local_source(self.service, "n1"), OnVault(inner), clock, Difference(0))

    async def start(self) -> None:
        self.began_at.append(self.listeners.handled)
        self.listeners.listen("partitions", self._hear)

    def _hear(self, told: Told) -> None:
        if told.revision == self.fails_at:
            raise RuntimeError("the partition's disk")
        self.heard.append((told.revision, [event.key for event in told.events]))

    def put(self, *keys: str) -> int:
        for key in keys:
            self.group.apply([encode_command(Put(key.encode(), b"v"))])
        return self.group.store.revision


@pytest.fixture
async def world(tmp_path: Path) -> World:
    return World(tmp_path / "vault")


async def test_components_start_from_the_vault_and_hear_what_came_after_it(world: World) -> None:
    world.put("a", "b")
    first = world.keeper()
    await first.start()
    assert await first.catch_up() == 3
    world.put("c")
    await until(lambda: first.revision == 4)
    await first.stop()
    world.put("d")
    second = world.keeper()
    await second.start()
    assert await second.catch_up() == 5
    await second.stop()
    assert world.began_at == [0, 4]
    assert [revision for revision, _ in world.heard] == [2, 3, 4, 5]


async def test_a_node_that_recovers_again_while_it_runs_starts_no_component_twice(world: World) -> None:
    """Dropped from the topology and back: compaction has passed it, and still no change is skipped."""
    world.put("a")
    keeper = world.keeper()
    await keeper.start()
    await keeper.catch_up()
    await keeper._stop_following()
    last = world.put("b", "c", "d")
    world.group.apply([encode_command(Compact(last))])
    assert await keeper.catch_up() == last
    await keeper.stop()
    assert len(world.began_at) == 1
    assert sorted(key for _, keys in world.heard for key in keys) == [b"a", b"b", b"c", b"d"]
    assert [report.case.value for report in keeper.reports if report.case] == ["b", "c"]


async def test_a_listener_that_fails_stops_the_node_and_the_next_start_tells_it_again(world: World) -> None:
    world.put("a")
    keeper = world.keeper()
    await keeper.start()
    await keeper.catch_up()
    running = asyncio.create_task(keeper.run())
    world.fails_at = world.put("b")
    with pytest.raises(Exception, match="component partitions could not handle revision 3"):
        await running
    assert keeper.revision == 2
    await keeper.stop()
    world.fails_at = 0
    again = world.keeper()
    await again.start()
    assert await again.catch_up() == 3
    await again.stop()
    assert world.heard[-1] == (3, [b"b"])
