"""The vault of a node, with components that depend on it (R4, R10; scenarios.md, "Recovery")."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from palisade.metastore.command_codec import encode_command
from palisade.metastore.requests import Compact
from palisade.recovery.lifecycle import Component
from palisade.recovery.listeners import Notification
from tests.support.keeper_world import World
from tests.support.waiting import until


@pytest.fixture
async def world(tmp_path: Path) -> World:
    return World(tmp_path / "vault")


async def test_components_start_from_the_vault_and_receive_later_revisions(world: World) -> None:
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


async def test_second_recovery_of_a_running_node_restarts_no_component(world: World) -> None:
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


class Beside(Component):
    """A component with a value, faster than the recording one."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.heard: list[int] = []

    async def start(self) -> None:
        self.value = self._world.listeners.value("beside", 0)
        self._world.listeners.listen("beside", self._on_change)

    def _on_change(self, notification: Notification) -> None:
        self.heard.append(notification.revision)
        if notification.last:
            self.value.set(notification.revision, notification.revision)


@pytest.mark.parametrize("compacted", [False, True], ids=["revisions", "difference"])
async def test_rejoining_node_interrupts_no_notification(world: World, compacted: bool) -> None:
    """It was dropped while a listener was at work: a notification that some listeners have received is not repeated."""
    world.put("a")
    beside = Beside(world)
    keeper = world.keeper(beside)
    await keeper.start()
    await keeper.catch_up()
    world.gate.clear()
    last = world.put("b", "c")
    if compacted:
        world.group.apply([encode_command(Compact(last))])
    await until(lambda: beside.heard[-1] > 2)
    again = asyncio.create_task(keeper.catch_up())
    await asyncio.sleep(0.05)
    assert not again.done()
    world.gate.set()
    assert await again == last
    await keeper.stop()
    assert beside.heard == ([2, 4] if compacted else [2, 3, 4])
    assert [revision for revision, _ in world.heard] == beside.heard


async def test_stopping_node_does_not_wait_for_a_listener(world: World) -> None:
    """scenarios.md, "Stop during recovery: clean, no hang"."""
    world.put("a")
    keeper = world.keeper()
    await keeper.start()
    await keeper.catch_up()
    world.gate.clear()
    world.put("b")
    await until(lambda: keeper._port.notifying.locked())
    again = asyncio.create_task(keeper.catch_up())
    await asyncio.sleep(0.01)
    again.cancel()
    async with asyncio.timeout(5):
        await asyncio.gather(again, return_exceptions=True)
        await keeper.stop()


async def test_failing_listener_stops_the_node_and_the_next_start_repeats_the_revision(world: World) -> None:
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
