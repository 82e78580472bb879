"""Metrics of realtime segments and of their hand-offs (issue 17)."""

from __future__ import annotations

import pytest

from palisade.api.http.realtime_families import realtime_families
from palisade.segments.realtime import RealtimeIngester
from palisade.wire.segment_errors import NotIngesting, RealtimeNotStored, RealtimeRefused
from tests.segments.test_realtime import opened, started
from tests.support.realtime_disk import LogFiles
from tests.support.realtime_world import RealtimeWorld


def metrics(ingester: RealtimeIngester) -> dict[str, float]:
    samples = [each for family in realtime_families(ingester) for each in family.samples]
    label = {id(each): "".join(f" {value}" for value in each.labels.values()) for each in samples}
    return {each.name.removeprefix("palisade_realtime_") + label[id(each)]: each.value for each in samples}


def states(ingester: RealtimeIngester) -> dict[str, float]:
    found = metrics(ingester)
    return {name.split()[1]: value for name, value in found.items() if name.startswith("segments ") and value}


async def test_metrics_follow_a_segment_from_its_first_row_to_its_hand_off() -> None:
    world, node = await started()
    held, second = await opened(world, node), await opened(world, node)
    await node.ingester.append(held.name, [[1], [2]], 0)
    await node.ingester.append(second.name, [[1], [2], [3]], 0)
    world.sent = world.acknowledged = {held.name: 2, second.name: 3}
    found = metrics(node.ingester)
    size_bytes = held.log.size_bytes + second.log.size_bytes
    assert (found["rows"], found["bytes"], found["appended_total"]) == (5, size_bytes, 5)
    assert states(node.ingester) == {"realtime": 2}
    assert (found["handoffs_waiting"], found["handoff_age_seconds"], found["handoffs_total"]) == (0, 0, 0)

    await world.finished(node.ingester.close_segment(held.name))
    world.cluster.wait(3_000)
    await world.finished(node.ingester.close_segment(second.name))
    world.cluster.wait(2_000)
    found = metrics(node.ingester)
    assert states(node.ingester) == {"publishing": 2}
    assert (found["rows"], found["bytes"], found["handoffs_waiting"]) == (0, 0, 2)
    assert found["handoff_age_seconds"] == pytest.approx(5, abs=0.1)

    await world.finished(node.hand_off.work())
    world.deliver_all()
    assert states(node.ingester) == {"handing-off": 2}
    assert metrics(node.ingester)["handoffs_waiting"] == 2
    await world.heal()
    found = metrics(node.ingester)
    assert states(node.ingester) == {}
    assert (found["handoffs_waiting"], found["handoff_age_seconds"], found["handoffs_total"]) == (0, 0, 2)


async def test_repeated_batch_is_not_counted_again() -> None:
    world, node = await started()
    held = await opened(world, node)
    for _ in range(2):
        await node.ingester.append(held.name, [[1], [2]], 0)
    assert metrics(node.ingester)["appended_total"] == 2


async def test_metrics_count_refusals_by_code(monkeypatch: pytest.MonkeyPatch) -> None:
    world, node = await started()
    held = await opened(world, node)
    with pytest.raises(RealtimeRefused):
        await node.ingester.append(held.name, [[1]], 7)
    with monkeypatch.context() as patch:
        patch.setattr(LogFiles, "sync", full_disk)
        with pytest.raises(RealtimeNotStored):
            await node.ingester.append(held.name, [[1]], 0)
    world.expire("a")
    for _ in range(2):
        with pytest.raises(NotIngesting):
            await node.ingester.append(held.name, [[1]], 0)
    found = metrics(node.ingester)
    refused = {name.split()[1]: value for name, value in found.items() if name.startswith("refused_total")}
    assert refused == {"realtime-refused": 1, "realtime-not-stored": 1, "realtime-not-announced": 2}
    assert found["appended_total"] == 0


async def full_disk(self: LogFiles, name: str) -> None:
    raise OSError("no space left on device")


async def test_restarted_node_reports_what_it_has_to_hand_off(monkeypatch: pytest.MonkeyPatch) -> None:
    world, node = await started()
    held, lost = await opened(world, node), await opened(world, node)
    await node.ingester.append(held.name, [[1]], 0)
    await world.finished(node.ingester.close_segment(held.name))
    world.kill("a", {})
    directory = lost.name.replace("/", "@")
    node.logs.directories["damaged"] = node.logs.directories.pop(directory)
    await world.restart("a")
    world.cluster.wait(4_000)
    found = metrics(world.nodes["a"].ingester)
    assert (found["handoffs_waiting"], found["damaged"]) == (1, 1)
    assert found["handoff_age_seconds"] == pytest.approx(4, abs=0.1)


def test_node_without_segments_has_no_metrics_of_them() -> None:
    assert list(realtime_families(None)) == []
    assert metrics(RealtimeWorld(1).nodes["a"].ingester)["handoffs_waiting"] == 0
