"""Stored rows of a realtime segment that cannot be read any more: nothing is acknowledged beside them, nothing lost in
silence, and the operator learns what to do (issue 17)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from palisade.client.realtime_changes import give_up
from palisade.journal import log as log_module
from palisade.segments.segment_store import file_of
from palisade.wire.segment_errors import NoSuchSegment, RealtimeDamaged, RealtimeNotStored
from tests.segments.test_realtime import opened, started
from tests.segments.test_realtime_http import OPEN, Api, api, check_shape
from tests.support.realtime_disk import LogFolder
from tests.support.realtime_nodes import BrokerClient, IngestingNode

__all__ = ["api"]


@pytest.fixture(autouse=True)
def reads_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the last batch is kept in memory."""
    monkeypatch.setattr(log_module, "RECENT_BYTES", 0)


def damage(node: IngestingNode, name: str, row: bytes) -> None:
    """A bit of the first row that begins like this has changed on the medium."""
    (content, _), *_ = node.logs.directories[file_of(name)].values()
    content[content.index(row)] ^= 1


async def damaged(api: Api) -> str:
    """The name of a segment with four rows, in two batches. A bit of the first batch has changed on the medium."""
    _, opened = await api.ask("realtime", {**OPEN, "writer": "w1"})
    name = str(opened["segment"])
    for position in (0, 2):
        await api.ask(f"{name}/rows", {"rows": [[1, None], [2, None]], "position": position})
    damage(api.node, name, b"[1,")
    return name


READS = [
    ("{}/rows", {"rows": [[1, None], [2, None]], "position": 0}),
    ("{}/rows", None),
]


@pytest.mark.parametrize(("path", "body"), READS, ids=["append that is repeated", "columns"])
async def test_damage_of_stored_rows_is_answered_with_its_remedy_and_ends_the_segment_here(
    api: Api, path: str, body: Any
) -> None:
    """No row is acknowledged after it, lookups report the segment as missing, and it can be given up."""
    name = await damaged(api)
    status, found = await api.ask(path.format(name), body)
    assert (status, found["code"], found["retry"]) == (500, "realtime-damaged", False), found
    assert "is damaged at byte" in found["detail"]
    assert f"palisade segments realtime give-up {name}" in found["detail"]
    assert "the other copy" not in found["detail"]
    for again in ({"rows": [[3, None]], "position": 4}, {"rows": [[3, None]]}):
        assert (await api.ask(f"{name}/rows", again))[1]["code"] == "realtime-damaged"
    assert (await api.ask(f"{name}/close", {}))[1]["code"] == "realtime-damaged"
    _, listed = await api.ask("realtime")
    assert not listed["segments"]
    assert "is damaged at byte" in listed["damaged"][file_of(name)]
    check_shape("RealtimeSegments", listed)
    await api.world.finished(api.node.announcer.announce())
    api.world.deliver_all()
    assert not any(broker.nodes_of(name) for broker in api.world.brokers.values())


async def test_damage_that_the_hand_off_finds_ends_the_segment_here(api: Api) -> None:
    name = await damaged(api)
    await api.ask(f"{name}/close", {})
    await api.world.finished(api.node.hand_off.work())
    assert not api.node.ingester.held
    assert not api.node.ingester.growing()
    assert (await api.ask(f"{name}/rows", {"rows": [[3, None]]}))[1]["code"] == "realtime-damaged"


async def test_append_that_waits_while_damage_is_found_stores_nothing() -> None:
    world, node = await started()
    held = await opened(world, node)
    for position in (0, 2):
        await node.ingester.append(held.name, [[1], [2]], position)
    damage(node, held.name, b"[1]")
    async with held.lock:
        waiting = asyncio.create_task(node.ingester.append(held.name, [[3]], 4))
        await asyncio.sleep(0)
        with pytest.raises(RealtimeDamaged):
            await node.ingester.values(held)
    with pytest.raises(RealtimeNotStored):
        await waiting
    assert held.log.rows == 4


async def test_directory_that_is_left_after_a_hand_off_is_not_reported_as_damage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Copies have its rows."""

    async def refused(self: LogFolder, name: str) -> None:
        raise OSError("the disk is read-only")

    world, node = await started()
    held = await opened(world, node)
    monkeypatch.setattr(LogFolder, "remove", refused)
    with pytest.raises(OSError, match="read-only"):
        await node.ingester.discard(held)
    with pytest.raises(NoSuchSegment):
        await node.ingester.append(held.name, [[1]])


@pytest.mark.parametrize("restarted", [False, True])
async def test_writer_of_a_damaged_segment_opens_no_other_one_before_an_operator_decides(restarted: bool) -> None:
    """It would send its rows again. If the damaged segment is restored then, both are counted."""
    world, node = await started()
    held = await opened(world, node, "w1")
    for position in (0, 2):
        await node.ingester.append(held.name, [[1], [2]], position)
    damage(node, held.name, b"[1]")
    if restarted:
        world.expire("a")
        await world.restart("a")
        node = world.nodes["a"]
        await world.finished(node.own.renew())
        world.deliver_all()
    else:
        with pytest.raises(RealtimeDamaged):
            await node.ingester.values(held)
    with pytest.raises(RealtimeDamaged, match=f"segment {held.name} cannot be read"):
        await opened(world, node, "w1")
    await world.finished(node.announcer.announce())
    world.deliver_all()
    client = BrokerClient(world, world.brokers["x"])
    await world.finished(give_up(client, held.log.header.segment, "ann", "damaged", 1))
    world.deliver_all()
    assert await opened(world, node, "w1") is not held
